"""What a user's autograd.Function marks dirty counts as not written by it: the gradient misses the function's backward.

Kind: wrong result. Backends: eager (Dynamo alone). Seen with torch 2.11.0 (CPU, Python 3.11). Mended in torch 2.13.
"""

import sys
from typing import Any

import torch


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        ctx.mark_dirty(x.mul_(2))
        return x

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        return gradient * 2


def f(w: torch.Tensor) -> torch.Tensor:
    y = w + 1
    Doubled.apply(y)
    return y * 3


def main() -> int:
    found = []
    for function in (f, torch.compile(f, backend="eager")):
        w = torch.ones(1, requires_grad=True)
        found.append(torch.autograd.grad(function(w).sum(), w)[0].item())
    print(f"torch {torch.__version__}: the slope of 2 * (w + 1) * 3 is {found[0]}; behind Dynamo {found[1]}")
    return 0 if found[0] != found[1] else 1


if __name__ == "__main__":
    sys.exit(main())
