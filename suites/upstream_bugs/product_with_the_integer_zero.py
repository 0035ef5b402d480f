"""A product with the integer 0 is 0.0: the sign of negative numbers is lost, and infinity and NaN give no NaN.

Kind: wrong result. Backends: inductor. Seen with torch 2.13.0 (CPU, Python 3.11).
"""

import sys

import torch


def f(x: torch.Tensor) -> torch.Tensor:
    return x * 0


def main() -> int:
    backend = sys.argv[1] if len(sys.argv) > 1 else "inductor"
    x = torch.tensor([-2.0, 1.0, float("inf"), float("nan")])
    ours, expected = torch.compile(f, backend=backend)(x), f(x)
    print(f"torch {torch.__version__}, {backend}: eager {expected}, compiled {ours}")
    return 0 if str(ours) != str(expected) else 1


if __name__ == "__main__":
    sys.exit(main())
