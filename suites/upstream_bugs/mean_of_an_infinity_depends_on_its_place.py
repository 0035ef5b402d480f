"""The mean that var_mean gives is infinite where an infinity stands last, and no number where it stands before others.

Kind: wrong result. Backends: eager. Seen with torch 2.13.0 (CPU, Python 3.11). `torch.mean` is infinite for all places.
"""

import math
import sys

import torch


def main() -> int:
    numbers = [math.inf, 1.0, 2.0]
    means = [torch.var_mean(torch.tensor(x))[1].item() for x in (numbers, numbers[::-1])]
    print(f"torch {torch.__version__}: the means of {numbers} and of its reverse are {means[0]} and {means[1]}")
    return 0 if math.isnan(means[0]) and math.isinf(means[1]) else 1


if __name__ == "__main__":
    sys.exit(main())
