"""layer_norm takes weights of float64 for float32, which eager refuses.

Kind: missing error. Backends: inductor. Seen with torch 2.13.0 (CPU, Python 3.11).
"""

import sys

import torch
from torch.nn import functional as F


def f(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return F.layer_norm(x, (4,), w)


def result(function: object, *arguments: object) -> str:
    try:
        return str(function(*arguments))  # type: ignore[operator]
    except Exception:
        return "an error"


def main() -> int:
    backend = sys.argv[1] if len(sys.argv) > 1 else "inductor"
    x, w = torch.arange(4.0), torch.ones(4, dtype=torch.float64)
    eager, compiled = result(f, x, w), result(torch.compile(f, backend=backend), x, w)
    print(f"torch {torch.__version__}, {backend}: eager {eager}, compiled {compiled}")
    return 0 if eager == "an error" != compiled else 1


if __name__ == "__main__":
    sys.exit(main())
