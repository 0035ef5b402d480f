"""gelu of a negative zero is a positive zero where two numbers or more are computed, and a negative one alone.

Kind: wrong result.
Backends: eager. Seen with torch 2.13.0 (CPU with AVX2, Python 3.11). In float64 it is negative always.
Shows only with AVX2 and without AVX-512, where oneDNN computes gelu.
"""

import sys

import torch


def main() -> int:
    x = torch.tensor([-0.0, -0.0])
    alone, beside = torch.nn.functional.gelu(x[:1]), torch.nn.functional.gelu(x)
    print(f"torch {torch.__version__}: gelu(-0.0) is {alone[0]} alone and {beside[0]} beside another")
    return int(not (alone[0].signbit() and not beside[0].signbit()))


if __name__ == "__main__":
    sys.exit(main())
