"""The gradient of `prod` by the formula that eager chooses: eager asks whether a factor is zero, a recording cannot.

    y = prod(x, dim)     ->     dx = where(any(x == 0), dy * the product of the other factors, dy * (y / x))
    y = prod(x)          ->     the same, and 0 for several zeros, where no gradients of gradients are asked for

Torch records the first formula alone. The second one rounds otherwise, and has NaN where a factor is NaN or infinite.
Several zeros make the gradient of every factor zero, be the factor NaN or infinite.

Source: which formula eager takes follows torch/csrc/autograd/FunctionsManual.cpp, torch 2.13.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch._C import DispatchKey
from torch._C._functorch import is_functorch_wrapped_tensor
from torch._functorch.utils import enable_single_level_autograd_function
from torch.fx.experimental.symbolic_shapes import guard_or_false

from assay.compiler.ir.graph.recording_lock import recording_lock

aten = torch.ops.aten
PRODUCTS = (aten.prod.default, aten.prod.dim_int)

_is_dead: Callable[[Tensor], bool] = torch._C._functorch.is_dead_tensor_wrapper  # type: ignore[attr-defined]


class Product(torch.autograd.Function):
    """`prod` of a tensor, with what the operator is given behind it: `along` by position, then the rest by name."""

    @staticmethod
    def forward(
        ctx: Any, op: torch._ops.OpOverload, x: Tensor, along: tuple[Any, ...], named: dict[str, Any]
    ) -> Tensor:
        with torch._C._AutoDispatchBelowAutograd():
            result: Tensor = op(x, *along, **named)
        ctx.along = along
        ctx.save_for_backward(x, result)
        ctx.save_for_forward(x, result)
        return result

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        (grad,) = grads
        x, result = ctx.saved_tensors
        return None, product_gradient(grad, x.to(grad.dtype), result, *ctx.along), None, None

    @staticmethod
    def jvp(ctx: Any, _op: None, tangent: Tensor, *_others: None) -> Tensor:
        x, result = ctx.saved_tensors
        slope = product_gradient(torch.ones_like(result), x.to(result.dtype), result, *ctx.along)
        return (slope * tangent.conj()).sum(*ctx.along).conj()


def product_gradient(grad: Tensor, x: Tensor, result: Tensor, dim: int | None = None, keepdim: bool = False) -> Tensor:
    """The gradient of `x`. A gradient of the formula that is not taken is zero: its factors are replaced by ones."""
    if x.dim() == 0:
        return grad
    if dim is not None and not keepdim:
        grad, result = grad.unsqueeze(dim), result.unsqueeze(dim)
    if guard_or_false(x.numel() == 0):
        return grad * (result / x).conj()
    if _is_transformed(x):
        return grad * _of_others(x, dim).conj()
    zeros = (x == 0).sum()
    has_none = zeros == 0
    safe, divided = x, x
    if torch.is_grad_enabled():
        one = torch.ones((), dtype=x.dtype, device=x.device)
        safe, divided = torch.where(has_none, one, x), torch.where(has_none, x, one)
    by_others = grad * _of_others(safe, dim).conj()
    if dim is None and not torch.is_grad_enabled():
        by_others = torch.where(zeros > 1, torch.zeros((), dtype=grad.dtype, device=grad.device), by_others)
    return torch.where(has_none, grad * (result / divided).conj(), by_others)


def _is_transformed(x: Tensor) -> bool:
    """Whether a transform that still runs sees this tensor, which lets eager ask for no values."""
    return is_functorch_wrapped_tensor(x) and not _is_dead(x)


def _of_others(x: Tensor, dim: int | None) -> Tensor:
    """For each factor the product of the others."""
    if dim is None:
        return _of_others(x.contiguous().view(-1), 0).view_as(x)
    one = torch.ones_like(x.narrow(dim, 0, 1))
    before = torch.cat([one, x.narrow(dim, 0, x.shape[dim] - 1)], dim).cumprod(dim)
    after = torch.cat([one, x.narrow(dim, 1, x.shape[dim] - 1).flip(dim)], dim).cumprod(dim).flip(dim)
    return before * after


@contextmanager
def products_by_values() -> Iterator[None]:
    """While it is open, products are recorded so that their gradient is. One recording at a time; one may be within
    another."""
    with recording_lock:
        before = [op.py_kernels.get(DispatchKey.Autograd) for op in PRODUCTS]
        for op in PRODUCTS:
            _set_kernel(op, _recorded(op))
        try:
            yield
        finally:
            for op, kernel in zip(PRODUCTS, before, strict=True):
                _set_kernel(op, kernel)


def _set_kernel(op: torch._ops.OpOverload, kernel: Callable[..., Any] | None) -> None:
    """What Python has for an operator under gradients; torch's own for None."""
    if kernel is None:
        op.py_kernels.pop(DispatchKey.Autograd, None)
    else:
        op.py_kernels[DispatchKey.Autograd] = kernel
    op._dispatch_cache.clear()


def _recorded(op: torch._ops.OpOverload) -> Callable[..., Any]:
    def record(x: Tensor, *args: Any, **kwargs: Any) -> Any:
        if not torch._C._are_functorch_transforms_active():
            return Product.apply(op, x, args, kwargs)
        with enable_single_level_autograd_function():  # at this level of the transforms alone, as an operator's is
            return super(torch.autograd.Function, Product).apply(op, x, args, kwargs)

    return record
