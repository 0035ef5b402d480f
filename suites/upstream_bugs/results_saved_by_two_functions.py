"""Compiled autograd fails where functions save results and the graph is kept: "Guard failed on the same frame".

Kind: error. Backends: eager (Dynamo alone). Seen with torch 2.13.0 (CPU, Python 3.11).
`ctx.saved_tensors` makes such a tensor anew at each access: the guard against duplicates compares addresses that are
used again.
"""

import sys
from typing import Any

import torch


class Exp(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        y = x.exp()
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        return gradient * ctx.saved_tensors[0]


def main() -> int:
    x = torch.ones(3, requires_grad=True)
    y = Exp.apply(Exp.apply(Exp.apply(x)))
    try:
        with torch._dynamo.compiled_autograd._enable(torch.compile(backend="eager")):
            torch.autograd.grad(y.sum(), x, retain_graph=True)
    except AssertionError as error:
        print(f"torch {torch.__version__}: {error}")
        return 0
    return 1


if __name__ == "__main__":
    sys.exit(main())
