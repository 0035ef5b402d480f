"""`native_batch_norm(..., out=)` of an input that is not contiguous never computes the mean.

Kind: wrong result. Backends: eager itself. Seen with torch 2.13.0 (CPU, Python 3.11).
What `save_mean` held before the call is taken for the mean: it is left as it was, and the result and the inverse
standard deviation follow from it. The same call on a contiguous input, and the one without `out`, are right.
"""

import sys

import torch
from torch import Tensor


def mean_of(x: Tensor) -> float:
    out, mean, deviation = torch.empty(x.shape), torch.full((1,), 7.0), torch.empty(1)
    torch.ops.aten.native_batch_norm.out(
        x, None, None, None, None, True, 0.0, 1e-5, out=out, save_mean=mean, save_invstd=deviation
    )
    return mean.item()


def main() -> int:
    x = torch.arange(6.0)[1::2].reshape(1, 1, 3)
    strided, contiguous = mean_of(x), mean_of(x.contiguous())
    print(f"torch {torch.__version__}: mean {x.mean().item()}, contiguous {contiguous}, strided {strided}")
    return 0 if (strided, contiguous) == (7.0, 3.0) else 1


if __name__ == "__main__":
    sys.exit(main())
