"""conj() of a real tensor is the tensor itself: compiled, two objects come back.

Kind: wrong form. Backends: aot_eager, inductor. Seen with torch 2.13.0 (CPU, Python 3.11).
The outputs share memory, so that only identity tells; resize_ or set_ of one is not seen through the other.
"""

import sys
from typing import Any

import torch


def f(x: torch.Tensor) -> Any:
    v = x.detach()
    return v, v.conj()


def inputs() -> tuple[torch.Tensor, ...]:
    return (torch.arange(3.0),)


def main() -> int:
    backend = sys.argv[1] if len(sys.argv) > 1 else "aot_eager"
    one, two = torch.compile(f, backend=backend)(*inputs())
    first, second = f(*inputs())
    print(f"torch {torch.__version__}, {backend}: one object: eager {first is second}, compiled {one is two}")
    return 0 if (one is two) != (first is second) else 1


if __name__ == "__main__":
    sys.exit(main())
