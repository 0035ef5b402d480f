"""A dropout of everything draws no random number in eager, and one for each element behind aot_eager.

Kind: wrong result. Backends: aot_eager. Seen with torch 2.13.0 (CPU, Python 3.11).
What is drawn after it differs. The Python kernel of aten.dropout, which only recordings run, knows no such case.
"""

import sys

import torch
from torch import Tensor
from torch.nn import functional as F


def dropped(x: Tensor) -> Tensor:
    return F.dropout(x, 1.0)


def main() -> int:
    found = {}
    for backend in ("eager", "aot_eager"):
        torch._dynamo.reset()
        torch.manual_seed(0)
        torch.compile(dropped, backend=backend)(torch.ones(4))
        found[backend] = torch.rand(1).item()
    print(f"torch {torch.__version__}: drawn after it: {found}")
    return 0 if found["aot_eager"] != found["eager"] else 1


if __name__ == "__main__":
    sys.exit(main())
