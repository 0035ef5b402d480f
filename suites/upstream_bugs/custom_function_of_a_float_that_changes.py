"""A custom function that takes a float, called twice: once the float has changed Dynamo raises an internal error.

Kind: error. Backends: eager (Dynamo alone), aot_eager, inductor. Seen with torch 2.13.0 (CPU, Python 3.11).
"""

import sys
from typing import Any

import torch
from torch import Tensor


class Scaled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, factor: float) -> Tensor:
        ctx.factor = factor
        return x * factor

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return gradient * ctx.factor, None


def main() -> int:
    x = torch.ones(2, requires_grad=True)
    compiled = torch.compile(lambda x, factor: Scaled.apply(x, factor) + Scaled.apply(x, factor + 1), backend="eager")
    compiled(x, 0.3)
    try:
        compiled(x, 0.6)
    except Exception as error:
        print(error)
        return int("does not belong to this Graph" not in str(error))
    return 1


if __name__ == "__main__":
    sys.exit(main())
