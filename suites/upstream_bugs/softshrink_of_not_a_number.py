"""softshrink of NaN is 0.

Kind: wrong result. Backends: inductor. Seen with torch 2.13.0 (CPU, Python 3.11).
"""

import sys

import torch
from torch.nn import functional as F


def f(x: torch.Tensor) -> torch.Tensor:
    return F.softshrink(x)


def main() -> int:
    backend = sys.argv[1] if len(sys.argv) > 1 else "inductor"
    x = torch.full((16,), float("nan"))
    eager, compiled = f(x), torch.compile(f, backend=backend)(x)
    print(f"torch {torch.__version__}, {backend}: eager {eager}, compiled {compiled}")
    return 0 if str(eager) != str(compiled) else 1


if __name__ == "__main__":
    sys.exit(main())
