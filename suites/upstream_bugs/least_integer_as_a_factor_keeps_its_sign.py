"""torch.sub(x, y, alpha=-2**63) adds what it has to subtract: the factor is negated as an integer, which wraps.

Kind: wrong result.
Backends: eager. Seen with torch 2.13.0 (CPU, Python 3.11). With alpha=-2.0**63, the same number, it is right.
"""

import sys

import torch


def main() -> int:
    x, y = torch.zeros(1, dtype=torch.float64), torch.ones(1, dtype=torch.float64)
    whole, fraction = (torch.sub(x, y, alpha=alpha).item() for alpha in (-(2**63), -(2.0**63)))
    print(f"torch {torch.__version__}: 0 - alpha is {whole} for the integer alpha, {fraction} for the same float")
    return int(whole == fraction)


if __name__ == "__main__":
    sys.exit(main())
