"""The floor of a negative number divided by infinity is -0.0, and not -1; that of infinity is infinity, not NaN.

Kind: wrong result. Backends: inductor. Seen with torch 2.13.0 (CPU, Python 3.11).
The quotient is rounded down. Eager, as Python, takes the remainder first.
"""

import sys

import torch


def f(x: torch.Tensor) -> torch.Tensor:
    return x // float("inf")


def main() -> int:
    backend = sys.argv[1] if len(sys.argv) > 1 else "inductor"
    x = torch.tensor([-2.0, 1.0])
    eager, compiled = f(x), torch.compile(f, backend=backend)(x)
    print(f"torch {torch.__version__}, {backend}: eager {eager}, compiled {compiled}")
    return 0 if not torch.equal(eager, compiled) else 1


if __name__ == "__main__":
    sys.exit(main())
