"""Integers are multiplied in place by a tensor of floats, which eager refuses: the product is cut off.

Kind: missing error. Backends: inductor. Seen with torch 2.13.0 (CPU, Python 3.11).
"""

import sys

import torch


def f(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return x.clone().mul_(y)


def result(function: object, *arguments: object) -> str:
    try:
        return str(function(*arguments))  # type: ignore[operator]
    except Exception:
        return "an error"


def main() -> int:
    backend = sys.argv[1] if len(sys.argv) > 1 else "inductor"
    x, y = torch.full((2,), 3), torch.full((2,), 0.5)
    eager, compiled = result(f, x, y), result(torch.compile(f, backend=backend), x, y)
    print(f"torch {torch.__version__}, {backend}: eager {eager}, compiled {compiled}")
    return 0 if eager == "an error" != compiled else 1


if __name__ == "__main__":
    sys.exit(main())
