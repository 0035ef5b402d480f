"""binary_cross_entropy takes numbers and targets outside of 0 to 1, which eager refuses, and gives -50.

Kind: missing error. Backends: inductor. Seen with torch 2.13.0 (CPU, Python 3.11).
Known as pytorch/pytorch#193757.
"""

import sys

import torch
from torch.nn import functional as F


def f(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return F.binary_cross_entropy(x, y)


def result(function: object, *arguments: object) -> str:
    try:
        return str(function(*arguments))  # type: ignore[operator]
    except Exception:
        return "an error"


def main() -> int:
    backend = sys.argv[1] if len(sys.argv) > 1 else "inductor"
    x, y = torch.ones(2), torch.full((2,), 1.5)
    eager, compiled = result(f, x, y), result(torch.compile(f, backend=backend), x, y)
    print(f"torch {torch.__version__}, {backend}: eager {eager}, compiled {compiled}")
    return 0 if eager == "an error" != compiled else 1


if __name__ == "__main__":
    sys.exit(main())
