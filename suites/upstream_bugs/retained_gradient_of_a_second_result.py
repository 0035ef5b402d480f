"""A write to the second result of a node, whose gradient is retained, is an internal error; to a part, a crash.

Kind: error. Backends: eager (a compiled call is one node). Seen with torch 2.13.0 (CPU, Python 3.11).
"""

import sys
from typing import Any

import torch
from torch import Tensor


class Two(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> tuple[Tensor, Tensor]:
        return x * 1, x * 2

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        return gradients[0] + gradients[1] * 2


def main() -> int:
    found = []
    for which in (0, 1):
        result = Two.apply(torch.ones(2, requires_grad=True))[which]
        result.retain_grad()
        try:
            result.mul_(3)
            found.append("is written")
        except RuntimeError as error:
            found.append(str(error)[:45])
    print(f"torch {torch.__version__}: the first result {found[0]}; the second: {found[1]}")
    return 0 if found[0] != found[1] else 1


if __name__ == "__main__":
    sys.exit(main())
