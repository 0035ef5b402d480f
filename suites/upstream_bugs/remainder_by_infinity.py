"""The remainder of a division by infinity is NaN, where it is the number itself or infinity.

Kind: wrong result. Backends: inductor. Seen with torch 2.13.0 (CPU, Python 3.11).
"""

import sys

import torch


def f(x: torch.Tensor) -> torch.Tensor:
    return x % float("inf")


def main() -> int:
    backend = sys.argv[1] if len(sys.argv) > 1 else "inductor"
    x = torch.tensor([-2.0, 0.0, 1.0, 2.5])
    ours, expected = torch.compile(f, backend=backend)(x), f(x)
    print(f"torch {torch.__version__}, {backend}: eager {expected}, compiled {ours}")
    return 0 if not torch.equal(ours, expected) else 1


if __name__ == "__main__":
    sys.exit(main())
