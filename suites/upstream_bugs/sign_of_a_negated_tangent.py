"""Backward under a tangent that is negated lazily gives gradients of the wrong sign.

Kind: wrong result. Backends: inductor. Seen with torch 2.13.0 (CPU, Python 3.11).
The negative bit of a gradient that comes in is not looked at, and its memory is read.
"""

import sys
from typing import Any

import torch
from torch import Tensor


def f(x: Tensor) -> Tensor:
    return x.sin() * 2


def slope(function: Any) -> list[float]:
    x = torch.zeros(2, requires_grad=True)
    (found,) = torch.autograd.grad(function(x), x, torch._neg_view(-torch.ones(2)))
    return found.tolist()


def main() -> int:
    eager, compiled = slope(f), slope(torch.compile(f, backend="inductor"))
    print(f"torch {torch.__version__}: eager {eager}, compiled {compiled}")
    return 0 if eager != compiled else 1


if __name__ == "__main__":
    sys.exit(main())
