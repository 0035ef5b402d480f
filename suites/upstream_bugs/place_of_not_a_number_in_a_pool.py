"""The place of the greatest of a window is that of its first NaN; eager's is that of its last.

Kind: wrong result. Backends: inductor. Seen with torch 2.13.0 (CPU, Python 3.11).
The gradient goes there.
"""

import sys

import torch
from torch.nn import functional as F


def f(x: torch.Tensor) -> torch.Tensor:
    return F.max_pool2d(x, 2, return_indices=True)[1]


def main() -> int:
    backend = sys.argv[1] if len(sys.argv) > 1 else "inductor"
    x = torch.full((1, 1, 2, 2), float("nan"))
    eager, compiled = f(x), torch.compile(f, backend=backend)(x)
    print(f"torch {torch.__version__}, {backend}: eager {eager}, compiled {compiled}")
    return 0 if not torch.equal(eager, compiled) else 1


if __name__ == "__main__":
    sys.exit(main())
