"""maximum(-0.0, 0.0) is 0.0 in full vectors and -0.0 behind them.

Kind: wrong result.
Backends: eager. Seen with torch 2.13.0 (CPU with AVX-512, Python 3.11). `1 / maximum(a, b)` shows it.
"""

import sys

import torch


def main() -> int:
    largest = torch.maximum(torch.full((17,), -0.0), torch.zeros(17))
    signs = torch.signbit(largest)
    print(f"torch {torch.__version__}: {int(signs.sum())} of {len(signs)} zeros are negative")
    return bool(signs.all()) or not bool(signs.any())


if __name__ == "__main__":
    sys.exit(main())
