"""Calls on as many elements as only data tells, recorded with gradients that ask for no number of them.

    y = cumsum(x, 0)     ->     dx = sum of dy from each place on        torch's formula asks whether there are any
    y = x @ w            ->     dx = dy @ w.t()                          torch's asks whether a row is as long as one

Each formula here is torch's for more than one element, and right for none and for one. What torch asks of a product
decides in which order of dimensions its gradients lie, and no more.

Source: the formulas follow torch/csrc/autograd/FunctionsManual.cpp, torch 2.13.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.functional_tensor import FunctionalTensor
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols

PRODUCTS = (torch.matmul, torch.mm, torch.Tensor.matmul, torch.Tensor.mm, torch.Tensor.__matmul__)


class Product(torch.autograd.Function):
    """`x @ w` of two matrices."""

    @staticmethod
    def forward(x: Tensor, w: Tensor) -> Tensor:
        return torch.mm(x, w)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        x, w = ctx.saved_tensors
        (grad,) = grads
        wants_x, wants_w = ctx.needs_input_grad
        return product(grad, w.t()) if wants_x else None, product(x.t(), grad) if wants_w else None


def product(x: Tensor, w: Tensor) -> Tensor:
    return Product.apply(x, w)


class RunningSum(torch.autograd.Function):
    """`cumsum(x, dim)`."""

    @staticmethod
    def forward(x: Tensor, dim: int) -> Tensor:
        return torch.cumsum(x, dim)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, int], output: Tensor) -> None:
        _, ctx.dim = inputs

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        return from_each_on(grads[0], ctx.dim), None


class RunningLogSum(torch.autograd.Function):
    """`logcumsumexp(x, dim)`."""

    @staticmethod
    def forward(x: Tensor, dim: int) -> Tensor:
        return torch.logcumsumexp(x, dim)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, int], output: Tensor) -> None:
        x, ctx.dim = inputs
        ctx.save_for_backward(x, output)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        x, result = ctx.saved_tensors
        (grad,) = grads
        none = torch.full((), torch.finfo(grad.dtype).min, dtype=grad.dtype, device=grad.device)
        up, down = (torch.where(sign * grad > 0, grad.abs().log(), none) for sign in (1, -1))
        parts = [(_log_from_each_on(part - result, ctx.dim) + x).exp() for part in (up, down)]
        return parts[0] - parts[1], None


def from_each_on(grad: Tensor, dim: int) -> Tensor:
    """At each place the sum of what is there and behind."""
    return grad.flip(dim).cumsum(dim).flip(dim)


def _log_from_each_on(value: Tensor, dim: int) -> Tensor:
    return RunningLogSum.apply(value.flip(dim), dim).flip(dim)


RUNNING: dict[Callable[..., Any], Callable[..., Tensor]] = {
    torch.cumsum: RunningSum.apply,
    torch.Tensor.cumsum: RunningSum.apply,
    torch.logcumsumexp: RunningLogSum.apply,
    torch.Tensor.logcumsumexp: RunningLogSum.apply,
}


def of_any_size(func: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Tensor | None:
    """What such a call gives, recorded so that its gradient is; None where torch's own formula can be recorded."""
    if func in PRODUCTS and not kwargs and all(map(_is_matrix, args)):
        is_asked = any(free_unbacked_symbols(each.stride()) for each in args)
        return product(*args) if is_asked and any(map(_records, args)) else None
    if func not in RUNNING or kwargs.keys() - {"dim", "dtype"}:
        return None
    x, dim = args[0], args[1] if len(args) > 1 else kwargs.get("dim")
    if not _records(x) or not isinstance(dim, int) or not free_unbacked_symbols(x.shape):
        return None
    return RUNNING[func](x if kwargs.get("dtype") is None else x.to(kwargs["dtype"]), dim)


def _is_matrix(value: object) -> bool:
    return type(value) is FunctionalTensor and value.dim() == 2


def _records(x: Tensor) -> bool:
    return x.requires_grad and torch.is_grad_enabled() and x.is_floating_point()
