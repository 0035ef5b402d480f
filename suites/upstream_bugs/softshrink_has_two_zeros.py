"""softshrink of equal numbers gives zeros of both signs: -0.0 where a vector is not full, 0.0 elsewhere.

Kind: wrong result.
Backends: eager. Seen with torch 2.13.0 (CPU with AVX-512, Python 3.11). `1 / softshrink(x)` shows it.
"""

import sys

import torch


def main() -> int:
    zeros = torch.nn.functional.softshrink(torch.full((37,), -0.1))
    signs = torch.signbit(zeros)
    print(f"torch {torch.__version__}: {int(signs.sum())} of {len(signs)} zeros are negative")
    return bool(signs.all()) or not bool(signs.any())


if __name__ == "__main__":
    sys.exit(main())
