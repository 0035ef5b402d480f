"""A user's autograd.Function that takes one tensor twice: its second gradient is dropped, and the first counts twice.

Kind: wrong result. Backends: eager (Dynamo alone). Seen with torch 2.11.0 (CPU, Python 3.11). Mended in torch 2.13.
"""

import sys
from typing import Any

import torch
from torch import Tensor


class Sum(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, y: Tensor) -> Tensor:
        return x + y

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor]:
        return gradient * 1, gradient * 10


def f(w: Tensor) -> Tensor:
    return Sum.apply(w, w)


def main() -> int:
    found = []
    for function in (f, torch.compile(f, backend="eager")):
        w = torch.ones(1, requires_grad=True)
        found.append(torch.autograd.grad(function(w).sum(), w)[0].item())
    print(f"torch {torch.__version__}: gradients of 1 and 10 come to {found[0]}; behind Dynamo to {found[1]}")
    return 0 if found[0] != found[1] else 1


if __name__ == "__main__":
    sys.exit(main())
