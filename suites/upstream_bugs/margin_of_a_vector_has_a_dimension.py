"""`multilabel_margin_loss(..., reduction="none")` of a vector gives a vector of one number instead of a number.

Kind: wrong form. Backends: aot_eager, inductor. Seen with torch 2.13.0 (CPU, Python 3.11).
The kernel on fake tensors keeps a dimension that the real one does not.
"""

import sys

import torch
from torch import Tensor
from torch.nn.functional import multilabel_margin_loss


def loss(x: Tensor, places: Tensor) -> Tensor:
    return multilabel_margin_loss(x, places, reduction="none")


def main() -> int:
    x, places, found = torch.ones(4), torch.zeros(4, dtype=torch.int64), {}
    for backend in ("eager", "aot_eager"):
        torch._dynamo.reset()
        found[backend] = tuple(torch.compile(loss, backend=backend)(x, places).shape)
    print(f"torch {torch.__version__}: {found}")
    return 0 if found == {"eager": (), "aot_eager": (1,)} else 1


if __name__ == "__main__":
    sys.exit(main())
