"""What was written into an input before a kernel raises is not in it.

Kind: wrong result. Backends: aot_eager, inductor. Seen with torch 2.13.0 (CPU, Python 3.11).
Functionalization copies what was written back at the end of the graph.
"""

import sys
from collections.abc import Callable
from typing import Any

import torch


def outcome(compiled: Callable[..., Any]) -> object:
    def f(x: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
        x.add_(1)
        return x[i]

    x = torch.ones(1)
    try:
        compiled(f)(x, torch.tensor([5]))
    except Exception:
        return x
    return None


def main() -> int:
    backend = sys.argv[1] if len(sys.argv) > 1 else "aot_eager"
    eager, ours = outcome(lambda f: f), outcome(lambda f: torch.compile(f, backend=backend))
    print(f"torch {torch.__version__}, {backend}: eager {eager}, compiled {ours}")
    return 0 if str(eager) != str(ours) else 1


if __name__ == "__main__":
    sys.exit(main())
