"""The negative of complex numbers has imaginary parts 0.0 in full vectors and -0.0 behind them, for the same numbers.

Kind: wrong result.
Backends: eager. Seen with torch 2.13.0 (CPU with AVX-512, Python 3.11). Vectors are subtracted from zero.
"""

import sys

import torch


def main() -> int:
    zeros = torch.ones(17, dtype=torch.complex64).neg().imag
    signs = torch.signbit(zeros)
    print(f"torch {torch.__version__}: {int(signs.sum())} of {len(signs)} zeros are negative")
    return bool(signs.all()) or not bool(signs.any())


if __name__ == "__main__":
    sys.exit(main())
