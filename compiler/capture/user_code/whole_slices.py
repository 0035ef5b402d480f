"""Indexing of tensors whose sizes are symbols, taken apart as eager takes it apart.

x[:, 1:]     ->     slice(x, 1, 1)        eager leaves out a slice of all that a dimension has
x[:, :]      ->     alias(x)

Torch leaves those out that it can compare with a size, which it cannot for a symbol. The result is the same elements,
but a view made in more steps than eager's.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import torch
from torch.fx.experimental.symbolic_shapes import guard_or_false

from assay.compiler.ir.tensors.layout.strides import has_symbols

aten = torch.ops.aten
NUMBERS = (int, torch.SymInt, type(None))
"""Where a slice may begin and end; a tensor is read by torch."""


def indexed(value: torch.Tensor, index: object) -> torch.Tensor | None:
    """`value[index]` for an index that has whole slices among its items; None where torch does as eager does."""
    if not has_symbols(value) or not isinstance(index, tuple):
        return None
    if not all(map(_is_plain, index)) or index.count(Ellipsis) > 1:
        return None
    taken = sum(isinstance(item, int | slice) for item in index)
    if taken > value.dim() or not _has_whole(index, value.shape, value.dim() - taken):
        return None
    return _taken(value, index, value.dim() - taken)


def _is_plain(item: object) -> bool:
    """Whether an item makes a view, and is no number that changes."""
    if isinstance(item, slice):
        is_forward = item.step is None or (type(item.step) is int and item.step > 0)
        return is_forward and all(isinstance(end, NUMBERS) for end in (item.start, item.stop))
    return item is None or item is Ellipsis or type(item) is int


def _has_whole(index: Sequence[Any], shape: Sequence[int], left_over: int) -> bool:
    """Whether an item is a whole slice; `left_over` dimensions are what an ellipsis stands for."""
    dim = 0
    for item in index:
        if isinstance(item, slice) and _is_whole(item, shape[dim]):
            return True
        dim += left_over if item is Ellipsis else item is not None
    return False


def _taken(value: torch.Tensor, index: Sequence[Any], left_over: int) -> torch.Tensor:
    """The view, item by item, without the whole slices."""
    result, dim = value, 0
    for item in index:
        if item is Ellipsis:
            dim += left_over
        elif item is None:
            result, dim = aten.unsqueeze.default(result, dim), dim + 1
        elif isinstance(item, int):
            result = aten.select.int(result, dim, item)
        elif _is_whole(item, result.shape[dim]):
            dim += 1
        else:
            result, dim = aten.slice.Tensor(result, dim, item.start, item.stop, item.step or 1), dim + 1
    return aten.alias.default(value) if result is value else result


def _is_whole(item: slice, size: int) -> bool:
    """Whether a slice is shown to take all of a dimension, whatever the size is."""
    if item.step not in (None, 1) or not (item.start is None or (type(item.start) is int and item.start == 0)):
        return False
    return item.stop is None or item.stop == sys.maxsize or guard_or_false(item.stop == size)
