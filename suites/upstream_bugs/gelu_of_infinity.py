"""gelu of infinity is NaN where a vector of two numbers or more is computed, and infinity for a number alone.

Kind: wrong result.
Backends: eager. Seen with torch 2.13.0 (CPU with AVX-512, Python 3.11). In float64 it is infinity always.
Shows only with AVX-512.
"""

import sys

import torch


def main() -> int:
    x = torch.tensor([float("inf"), 1.0])
    alone, beside = torch.nn.functional.gelu(x[:1]), torch.nn.functional.gelu(x)
    print(f"torch {torch.__version__}: gelu(inf) is {alone[0].item()} alone and {beside[0].item()} beside a number")
    return int(not beside[0].isnan())


if __name__ == "__main__":
    sys.exit(main())
