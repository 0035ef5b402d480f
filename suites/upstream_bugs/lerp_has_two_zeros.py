"""lerp of equal numbers by a weight of 1 gives zeros of both signs: 0.0 where a vector is full, -0.0 elsewhere.

Kind: wrong result.
Backends: eager. Seen with torch 2.13.0 (CPU with AVX-512, Python 3.11). `1 / lerp(x, y, 1)` shows it.
"""

import sys

import torch


def main() -> int:
    x = torch.full((37,), -0.0)
    zeros = torch.lerp(x, x, 1.0)
    signs = torch.signbit(zeros)
    print(f"torch {torch.__version__}: {int(signs.sum())} of {len(signs)} zeros are negative")
    return bool(signs.all()) or not bool(signs.any())


if __name__ == "__main__":
    sys.exit(main())
