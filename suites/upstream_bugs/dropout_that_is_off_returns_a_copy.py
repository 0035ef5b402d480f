"""A dropout that is off returns its very input in eager, and a copy behind aot_eager and inductor: a write is lost.

Kind: wrong result. Backends: aot_eager, inductor. Seen with torch 2.13.0 (CPU, Python 3.11).
The Python kernel of aten.dropout, which only recordings run, clones where the C++ function returns its argument.
"""

import sys

import torch
from torch import Tensor
from torch.nn import functional as F


def evaluated(x: Tensor) -> Tensor:
    return F.dropout(x, training=False)


def main() -> int:
    found = {}
    for backend in ("eager", "aot_eager", "inductor"):
        torch._dynamo.reset()
        x = torch.ones(2)
        torch.compile(evaluated, backend=backend)(x).add_(1)
        found[backend] = x.tolist()
    print(f"torch {torch.__version__}: the input, after a write to the result: {found}")
    return 0 if found["aot_eager"] != found["eager"] and found["inductor"] != found["eager"] else 1


if __name__ == "__main__":
    sys.exit(main())
