"""A fake view of a batch of one has another stride than the real one, so that what reads it is laid out otherwise.

Kind: wrong form. Backends: aot_eager, inductor. Seen with torch 2.13.0 (CPU, Python 3.11).
"""

import sys

import torch
from torch.nn.functional import interpolate


def f(x: torch.Tensor) -> torch.Tensor:
    return interpolate(x.transpose(1, 2).reshape(1, -1, 2, 2), size=(8, 8), mode="bilinear")


def main() -> int:
    x = torch.ones(1, 4, 32)
    eager, compiled = f(x).stride(), torch.compile(f, backend="aot_eager")(x).stride()
    print(f"torch {torch.__version__}: enlarged images lie by {eager} in eager, compiled by {compiled}")
    return 0 if eager != compiled else 1


if __name__ == "__main__":
    sys.exit(main())
