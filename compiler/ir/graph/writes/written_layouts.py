"""How what is written in place lies, and how it is recorded: in the order of the tensor, lazy where the tensor is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch._subclasses.functional_tensor import FunctionalTensor
from torch.utils._python_dispatch import _disable_current_modes

from assay.compiler.errors import Unsupported
from assay.compiler.ir.tensors.layout.strides import (
    extent,
    hint,
    hints,
    is_dense,
    is_known,
    order,
)
from assay.compiler.ir.tensors.mutating_operators import inner_of, written_by

KEEP_LAYOUT = frozenset(
    {
        torch.ops.aten.select_scatter.default,
        torch.ops.aten.slice_scatter.default,
        torch.ops.aten.diagonal_scatter.default,
        torch.ops.aten.as_strided_scatter.default,
    }
)
"""Operators whose result has the strides and the offset of their argument, gaps and all."""
OF_OTHER_ELEMENTS = (torch.ops.aten.view_as_complex.default, torch.ops.aten.view.dtype)
"""Views of several elements as one, which eager refuses where these do not lie at multiples of their number."""
ASKS_LAYOUT = KEEP_LAYOUT | {torch.ops.aten.as_strided.default}


def check_layout(func: torch._ops.OpOverload, value: torch.Tensor) -> None:
    """Raises: Unsupported where a result would not lie as eager's does. What was written in place is recorded as made
    anew, densely. The dropout of an empty tensor is that very tensor.
    """
    if func not in KEEP_LAYOUT:
        if value.numel() == 0:
            raise Unsupported(f"the program calls {func} on an empty tensor, which returns it")
        return
    recorded = torch._from_functional_tensor(value.elem) if isinstance(value, FunctionalTensor) else value
    has_gaps = not (value.is_contiguous() or is_dense(value))
    if recorded.stride() != value.stride() or has_gaps or value.storage_offset() != 0:
        raise Unsupported(f"the program calls {func}, which keeps the strides and the offset of what it is called on")


RESIZES = (torch.ops.aten.resize_.default, torch.ops.aten.resize_as_.default)


def check_order(func: torch._ops.OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Copies what was written to where the tensor lies, if it is recorded in another order of dimensions than it has.

    What follows from it would otherwise lie elsewhere than in eager.

    Raises: Unsupported where that takes no copy, as for a view.
    """
    written = [value for value in written_by(func, args, kwargs) if isinstance(value, FunctionalTensor)]
    for value in (*written, *_bases_of(written)):
        if _lies(inner_of(value)) != _lies(value) and func not in RESIZES:
            _relay(value)
        if _lies(inner_of(value)) != _lies(value):
            raise Unsupported(f"the program writes a tensor by {func}, which is recorded in another order of strides")


def mark_lazy(func: torch._ops.OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Makes what is recorded for written tensors lazily conjugated and negated where they are, and only there.

    A write records a new value, which is not lazy. Bases come first, since views of them are then recorded anew.
    """
    written = [value for value in written_by(func, args, kwargs) if isinstance(value, FunctionalTensor)]
    for value in (*_bases_of(written), *written):
        _mark_lazy(value)


def _bases_of(written: Sequence[FunctionalTensor]) -> list[FunctionalTensor]:
    return [base for value in written if isinstance(base := value._base, FunctionalTensor)]


def _mark_lazy(value: FunctionalTensor) -> None:
    """Puts a value that is lazily conjugated and negated as the tensor is in the place of what was recorded for it.

    Where the tensor is lazy it is the lazy view of its opposite, and otherwise the recorded value made physical.
    """
    recorded = marked = inner_of(value)
    if recorded.is_conj() != value.is_conj():
        opposite = torch.ops.aten.conj_physical.default
        marked = torch.ops.aten._conj.default(opposite(marked)) if value.is_conj() else marked.resolve_conj()
    if recorded.is_neg() != value.is_neg():
        opposite = torch.ops.aten.neg.default
        marked = torch.ops.aten._neg_view.default(opposite(marked)) if value.is_neg() else marked.resolve_neg()
    if marked is not recorded:
        _replace(value, marked)


def _relay(value: FunctionalTensor) -> None:
    """Puts a copy that lies as the tensor does in the place of what was recorded for it."""
    recorded = inner_of(value)
    place = torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=value.device)
    _replace(value, torch.ops.aten.copy.default(place, recorded))


def _replace(value: FunctionalTensor, recorded: torch.Tensor) -> None:
    torch._functionalize_replace(value.elem, recorded)
    torch._functionalize_commit_update(value.elem)
    torch._functionalize_sync(value.elem)


def _lies(value: torch.Tensor) -> tuple[object, ...]:
    """What the strides of a result computed of a tensor follow from: its order, and the strides that step nowhere."""
    if not all(map(is_known, value.shape)) or value.numel() == 0:
        return value.stride()
    singles = [hint(step) for size, step in zip(value.shape, value.stride(), strict=True) if hint(size) == 1]
    return order(value), singles


def is_relaid(value: torch.Tensor) -> bool:
    """Whether a tensor is recorded with other strides, or another offset, than it has."""
    if not isinstance(value, FunctionalTensor):
        return False
    recorded = torch._from_functional_tensor(value.elem)
    return (recorded.stride(), recorded.storage_offset()) != (value.stride(), value.storage_offset())


def meta_of(value: torch.Tensor) -> torch.Tensor:
    """A tensor without elements that lies as eager's does."""
    with _disable_current_modes():
        sizes, strides, offset = hints(value.shape), hints(value.stride()), hint(value.storage_offset())
        memory = torch.empty(max(offset + extent(sizes, strides), 0), dtype=value.dtype, device="meta")
        return memory.as_strided(sizes, strides, offset)
