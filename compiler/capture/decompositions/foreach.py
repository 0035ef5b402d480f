"""`_foreach_*` as one call for each tensor of the lists, so that an optimizer's step is kernels and not list calls.

    _foreach_add.List([a, b], [c, d], alpha=2)  ->  [add(a, c, alpha=2), add(b, d, alpha=2)]

Eager on the CPU does the same, one call after another.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from assay.compiler.torch_compat import Decompositions

aten = torch.ops.aten

UNARY = (
    "abs acos asin atan ceil cos cosh erf erfc exp expm1 floor frac lgamma log log10 log1p log2 neg reciprocal round"
    " rsqrt sigmoid sign sin sinh sqrt tan tanh trunc clone max"
).split()
BINARY = "add sub mul div clamp_max clamp_min pow".split()


def _addcmul(x: Tensor, a: Tensor, b: Tensor, value: float) -> Tensor:
    return torch.addcmul(x, a, b, value=value)


def _addcdiv(x: Tensor, a: Tensor, b: Tensor, value: float) -> Tensor:
    return torch.addcdiv(x, a, b, value=value)


def _norm(x: Tensor, order: float, dtype: torch.dtype | None) -> Tensor:
    return torch.linalg.vector_norm(x, order, dtype=dtype)


def _copy(x: Tensor, source: Tensor, non_blocking: bool) -> Tensor:
    return aten.copy(x, source, non_blocking)


ELEMENT: dict[str, Callable[..., Tensor]] = {
    **{name: getattr(torch, name) for name in (*UNARY, *BINARY)},
    "maximum": torch.clamp_min,  # what eager calls, of a number or a tensor
    "minimum": torch.clamp_max,
    "addcmul": _addcmul,
    "addcdiv": _addcdiv,
    "lerp": torch.lerp,
    "norm": _norm,
    "copy": _copy,
    "zero": torch.zeros_like,
}
"""What each list operator does to one tensor."""

LEFT_WHOLE = ("addcmul.Tensor", "addcdiv.Tensor")
"""Their numbers lie in a tensor, whose values only eager can read."""


def _by_element(operator: torch._ops.OpOverload, element: Callable[..., Tensor], *args: Any, **kwargs: Any) -> Any:
    """One call for each position of the lists; what is no list goes to all of them."""
    arguments = operator._schema.arguments
    given = [*args, *(kwargs.pop(a.name, a.default_value) for a in arguments[len(args) :] if not a.kwarg_only)]
    count = next(len(value) for value in given if isinstance(value, list | tuple))
    columns = [value if isinstance(value, list | tuple) else [value] * count for value in given]
    return [element(*row, **kwargs) for row in zip(*columns, strict=True)]


def _list_operators() -> Iterator[tuple[torch._ops.OpOverload, Callable[..., Tensor]]]:
    for name, element in ELEMENT.items():
        packet = getattr(aten, f"_foreach_{name}", None)
        for overload in packet.overloads() if packet is not None else ():
            if "out" not in overload and f"{name}.{overload}" not in LEFT_WHOLE:
                yield getattr(packet, overload), element


FOREACH: Decompositions = {
    operator: functools.partial(_by_element, operator, element) for operator, element in _list_operators()
}


def _divided(operator: torch._ops.OpOverload, tensors: list[Tensor], *args: Any) -> Any:
    """On a GPU eager divides lists by numbers, and one tensor by multiplying it by a number's reciprocal."""
    return NotImplemented if tensors[0].is_cuda else FOREACH[operator](tensors, *args)


EXACT_FOREACH: Decompositions = {
    operator: functools.partial(_divided, operator)
    for operator in (aten._foreach_div.Scalar, aten._foreach_div.ScalarList)
}
"""Those of which single calls have other bits than eager's."""
