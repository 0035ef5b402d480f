"""Higher-order operators that are recorded as what they call.

wrap(f, *xs), strict_mode(f, xs), hints_wrapper(f, xs, {}, hints)      f(*xs)
wrap_with_set_grad_enabled(on, f, *xs), wrap_with_autocast(..., f, *xs)     the same, in that mode
foreach_map(f, *xs), invoke_quant(f, *xs, scheme=...), any BaseHOP      f(*xs): keywords are hints
out_dtype(op, dtype, *xs)                                              op of what is cast to that dtype, cast to it
flex_attention(q, k, v, score, ...)                                    products, scores, softmax, as eager has them
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx
from torch._C import DispatchKey
from torch._higher_order_ops.base_hop import BaseHOP
from torch.utils import _pytree as pytree

Interpret = Callable[..., Any]
"""`interpret(graph, *args)` records a graph inside a graph as if it stood there."""


def _wrap(interpret: Interpret, body: fx.GraphModule, *args: Any, **kwargs: Any) -> Any:
    return body(*args, **kwargs) if kwargs else interpret(body, *args)


def _strict_mode(interpret: Interpret, body: fx.GraphModule, operands: Sequence[Any]) -> Any:
    return interpret(body, *operands)


def _hints_wrapper(
    interpret: Interpret, body: fx.GraphModule, args: Sequence[Any], kwargs: dict[str, Any], hints: object
) -> Any:
    return _wrap(interpret, body, *args, **kwargs)


def _hinted(interpret: Interpret, body: fx.GraphModule, *args: Any, **hints: object) -> Any:
    return interpret(body, *args)


def _set_grad_enabled(interpret: Interpret, is_on: bool, body: fx.GraphModule, *args: Any, **kwargs: Any) -> Any:
    with torch.set_grad_enabled(is_on):
        return _wrap(interpret, body, *args, **kwargs)


def _autocast(
    interpret: Interpret,
    device: str,
    dtype: torch.dtype | None,
    is_on: bool,
    caches: bool | None,
    body: fx.GraphModule,
    *args: Any,
    **kwargs: Any,
) -> Any:
    with torch.autocast(device, dtype, is_on, caches):
        return _wrap(interpret, body, *args, **kwargs)


def _out_dtype(interpret: Interpret, operator: Callable[..., torch.Tensor], dtype: torch.dtype, *args: Any) -> Any:
    """The operator of tensors that are promoted to `dtype`: a product of bytes is then summed in 32 bits. Torch has no
    gradients of it, and its own call says so."""
    tensors = [value for value in pytree.tree_leaves(args) if isinstance(value, torch.Tensor)]
    if torch.is_grad_enabled() and any(value.requires_grad for value in tensors):
        return torch.ops.higher_order.out_dtype(operator, dtype, *args)
    if operator is torch.ops.aten.mm.default and dtype is torch.int32 and all(map(_is_of_bytes_on_a_gpu, args)):
        return torch.ops.aten._int_mm.default(*args)  # as eager: a GPU has no other product of integers
    wide = dtype
    for value in tensors:
        wide = torch.promote_types(wide, value.dtype)
    return operator(*pytree.tree_map_only(torch.Tensor, lambda value: value.to(wide), args)).to(dtype)


def _is_of_bytes_on_a_gpu(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.is_cuda and value.dtype is torch.int8


def _flex_attention(interpret: Interpret, *args: Any, **kwargs: Any) -> Any:
    """By torch's own formula of it, which eager runs where no kernel is compiled; under autocast as that casts."""
    formula = torch.ops.higher_order.flex_attention.py_kernels[DispatchKey.CompositeExplicitAutograd]
    device = args[0].device.type
    if not torch.is_autocast_enabled(device):
        return formula(*args, **kwargs)
    dtype = torch.get_autocast_dtype(device)
    with torch.autocast(device, enabled=False):
        return formula(*(value.to(dtype) for value in args[:3]), *args[3:], **kwargs)


def _operator(name: str) -> object:
    """A higher-order operator by its name; None for one that this torch has not."""
    return getattr(torch.ops.higher_order, name, None)


INLINED: dict[object, Callable[..., Any]] = {
    _operator("wrap"): _wrap,
    _operator("strict_mode"): _strict_mode,
    _operator("hints_wrapper"): _hints_wrapper,
    _operator("wrap_with_set_grad_enabled"): _set_grad_enabled,
    _operator("wrap_with_autocast"): _autocast,
    _operator("out_dtype"): _out_dtype,
    _operator("flex_attention"): _flex_attention,
}


def inlined(target: object) -> Callable[..., Any] | None:
    """What records a call of a higher-order operator as what it calls; None for other operators."""
    return _hinted if isinstance(target, BaseHOP) else INLINED.get(target)
