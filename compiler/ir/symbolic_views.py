"""Views of symbolic sizes with one question.

To find the strides of a view, torch asks for each pair of sizes whether one divides the other. Where sizes are
symbols that are themselves quotients, as those of windows are, an answer takes up to a second. A tensor in rows,
viewed in another shape, lies in rows: all there is to ask is whether the shape has as many elements.

    with x of (a, b, c) in rows: view(x, [a//2, 2, b*c]) has strides (2*b*c, b*c, 1) if a*b*c == (a//2)*2*b*c
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import sympy
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

from compiler.ir.strides import Number, has_symbols, rows_of

VIEWS = (torch.ops.aten.view.default, torch.ops.aten._unsafe_view.default)


class ViewsInRows(TorchDispatchMode):
    """Above a mode of fake tensors: takes views of tensors in rows by their strides."""

    supports_higher_order_operators = True  # which go on to the mode below

    def __torch_dispatch__(
        self,
        func: Any,
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        if func in VIEWS and not kwargs and has_symbols(args[0]) and _is_in_rows(args[0]):
            value, shape = args
            if _has_as_many(value, shape):
                return torch.as_strided(value, shape, _rows_of(shape), value.storage_offset())
        return func(*args, **(kwargs or {}))


def has_symbols_of(mode: FakeTensorMode) -> bool:
    """Whether any size that the mode knows is a symbol."""
    environment: Any = mode.shape_env
    if environment is None:
        return False
    return bool(environment.backed_var_to_val if hasattr(environment, "backed_var_to_val") else environment.var_to_val)


def _is_in_rows(value: torch.Tensor) -> bool:
    """Whether the strides are written as the products of the sizes behind them."""
    pairs = zip(value.stride(), _rows_of(value.shape), strict=True)
    return value.dim() > 0 and all(_written(step) == _written(expected) for step, expected in pairs)


def _rows_of(shape: Sequence[Number]) -> tuple[Number, ...]:
    """The strides of a tensor in rows, as torch writes them: a size that may be 0 counts as 1."""
    return rows_of([max(size, 1) if isinstance(size, int) else torch.sym_max(size, 1) for size in shape])


def _has_as_many(value: torch.Tensor, shape: Sequence[Number]) -> bool:
    """Whether a shape, which leaves no size to be found, has as many elements as the tensor: the one question."""
    if not shape or any(isinstance(size, int) and size < 0 for size in shape):
        return False
    return bool(math.prod(value.shape) == math.prod(shape))


def _written(size: Number) -> Any:
    return size.node.expr if isinstance(size, torch.SymInt) else sympy.Integer(size)
