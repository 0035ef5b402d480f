"""`x ** n` of an integer n that varies, with gradients: the exponent is a tensor, and `x` alone is kept for backward.

    dx = n * x ** (n - 1) * dy, and 0 where n is 0

Torch's formula of an exponent that is a tensor keeps the power too, which a program may write into.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


class Power(torch.autograd.Function):
    """`x ** exponent`; the exponent has no dimension and no gradient."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, exponent: Tensor) -> Tensor:
        return torch.pow(x, exponent)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
        ctx.save_for_backward(*inputs)
        ctx.save_for_forward(*inputs)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        (grad,) = grads
        return grad * _slope(*ctx.saved_tensors).conj(), None

    @staticmethod
    def jvp(ctx: Any, tangent: Tensor, *_: None) -> Tensor:
        return tangent * _slope(*ctx.saved_tensors)


def _slope(x: Tensor, exponent: Tensor) -> Tensor:
    below = power(x, exponent - 1) if x.requires_grad else torch.pow(x, exponent - 1)
    return torch.where(exponent == 0, torch.zeros_like(below), exponent * below)


def power(x: Tensor, exponent: Tensor) -> Tensor:
    return Power.apply(x, exponent)
