"""A square root is not the nearest number to it, though IEEE 754 has no other.

Kind: wrong result.
Backends: eager. Seen with torch 2.13.0 (CPU with AVX-512, Python 3.11): one root of float32 in six and one of float64
in eighty is the second nearest. Which they are depends on the processor: on one of Intel's, the root of 0.5 is among
them. A compiled `torch.sqrt` rounds, with Inductor as with this compiler.
"""

import math
import sys

import torch


def main() -> int:
    x = torch.linspace(0.5, 100, 10_000, dtype=torch.float64)
    rounded = torch.tensor([math.sqrt(value) for value in x.tolist()], dtype=x.dtype)
    other = int((torch.sqrt(x) != rounded).sum())
    print(f"torch {torch.__version__}: {other} of {len(x)} square roots are not the nearest number")
    return 0 if other else 1


if __name__ == "__main__":
    sys.exit(main())
