"""sub(x, y, alpha=-2**63) has the wrong sign: the integer is negated before it becomes a float, and has no 2**63.

Kind: wrong result.
Backends: eager, aot_eager. Seen with torch 2.13.0 (CPU, Python 3.11). `inductor` computes it with floats.
"""

import sys

import torch

LEAST = -(2**63)


def main() -> int:
    x, y = torch.zeros(2), torch.tensor([1.0, 2.0])
    by_integer = torch.sub(x, y, alpha=LEAST)
    by_float = torch.sub(x, y, alpha=float(LEAST))
    print(f"torch {torch.__version__}: by the integer {by_integer.tolist()}, by the float {by_float.tolist()}")
    return bool(torch.equal(by_integer, by_float))


if __name__ == "__main__":
    sys.exit(main())
