"""Under create_graph=True the backward of a user's autograd.Function counts as constant: the gradient of it is wrong.

Kind: wrong result. Backends: eager (Dynamo alone). Seen with torch 2.13.0 (CPU, Python 3.11).
Dynamo traces that backward with gradients off, and its graph switches them off wherever it runs.
"""

import sys
from typing import Any

import torch
from torch import Tensor


class Cube(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        return gradient * 3 * x * x


def main() -> int:
    x = torch.tensor(2.0, requires_grad=True)
    found = []
    for function in (Cube.apply, torch.compile(Cube.apply, backend="eager")):
        (slope,) = torch.autograd.grad(function(x) * x, x, create_graph=True)
        found.append(torch.autograd.grad(slope, x)[0].item())
    print(f"torch {torch.__version__}: the second derivative of x ** 4 at 2 is {found[0]}; behind Dynamo {found[1]}")
    return 0 if found[0] != found[1] else 1


if __name__ == "__main__":
    sys.exit(main())
