"""smooth_l1_loss takes a negative beta, which eager refuses, and gives 0.5 for no difference.

Kind: missing error. Backends: inductor. Seen with torch 2.13.0 (CPU, Python 3.11).
Known as pytorch/pytorch#194501.
"""

import sys

import torch
from torch.nn import functional as F


def f(x: torch.Tensor) -> torch.Tensor:
    return F.smooth_l1_loss(x, x, beta=-1.0)


def result(function: object, *arguments: object) -> str:
    try:
        return str(function(*arguments))  # type: ignore[operator]
    except Exception:
        return "an error"


def main() -> int:
    backend = sys.argv[1] if len(sys.argv) > 1 else "inductor"
    x = torch.ones(2)
    eager, compiled = result(f, x), result(torch.compile(f, backend=backend), x)
    print(f"torch {torch.__version__}, {backend}: eager {eager}, compiled {compiled}")
    return 0 if eager == "an error" != compiled else 1


if __name__ == "__main__":
    sys.exit(main())
