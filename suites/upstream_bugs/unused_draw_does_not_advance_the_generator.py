"""A random draw that nothing uses is left out: what is drawn after the call differs from eager.

Kind: wrong result. Backends: aot_eager, inductor. Seen with torch 2.13.0 (CPU, Python 3.11).
The operator has the effect of advancing the generator.
"""

import sys
from typing import Any

import torch


def f(x: torch.Tensor) -> Any:
    torch.rand_like(x)
    return x + 1


def inputs() -> tuple[torch.Tensor, ...]:
    return (torch.zeros(3),)


def main() -> int:
    backend = sys.argv[1] if len(sys.argv) > 1 else "aot_eager"
    after = []
    for function in (f, torch.compile(f, backend=backend)):
        torch.manual_seed(0)
        function(*inputs())
        after.append(torch.rand(1).item())
    print(f"torch {torch.__version__}, {backend}: the next draw: eager {after[0]:.4f}, compiled {after[1]:.4f}")
    return 0 if after[0] != after[1] else 1


if __name__ == "__main__":
    sys.exit(main())
