"""A query that is not a number attends to nothing and gives zeros.

Kind: wrong result. Backends: eager itself. Seen with torch 2.13.0 (CPU, Python 3.11).
The flash kernel that `scaled_dot_product_attention` takes on the CPU never finds a maximum in a row of NaN; what the
function is documented to compute, a softmax of the products, is NaN. A model that has gone wrong looks fine after it.
"""

import sys

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention


def documented(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return torch.softmax(q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5, -1) @ v


def main() -> int:
    torch.manual_seed(0)
    q, k, v = torch.randn(3, 1, 1, 4, 16)
    q[0, 0, 1] = torch.nan
    expected, found = (attend(q, k, v)[0, 0, 1, 0].item() for attend in (documented, scaled_dot_product_attention))
    print(f"torch {torch.__version__}: as documented {expected}, scaled_dot_product_attention {found}")
    return 0 if expected != expected and found == 0 else 1


if __name__ == "__main__":
    sys.exit(main())
