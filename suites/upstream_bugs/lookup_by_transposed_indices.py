"""The result of a lookup by transposed indices lies as the indices in eager, in rows behind inductor.

Kind: wrong form. Backends: inductor. Seen with torch 2.13.0 (CPU, Python 3.11).
The kernel of `aten.index` on fake tensors asks how the source lies, and not how the indices do.
"""

import sys

import torch
from torch import Tensor


def looked_up(x: Tensor, places: Tensor) -> Tensor:
    return x[places]


def main() -> int:
    x, places = torch.randn(6, 4), torch.randint(0, 4, (3, 5)).t()
    found = {}
    for backend in ("eager", "inductor"):
        torch._dynamo.reset()
        found[backend] = torch.compile(looked_up, backend=backend)(x, places).stride()
    print(f"torch {torch.__version__}: {found}")
    return 0 if found["eager"] != found["inductor"] else 1


if __name__ == "__main__":
    sys.exit(main())
