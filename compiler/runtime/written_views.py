"""Writes of views that autograd records: the gradient of the base is eager's, to the sign of its zeros.

    eager    base = CopySlices(base, write)
    here     base, part = Parted(base); view = graph(part); base = CopySlices(base, copy)

Eager changes the gradient of the base in the view's part alone. Here two gradients come back to `Parted`: that of the
base, and that of the part by the graph. Autograd would add them up, and -0.0 or a complex infinity changes in a sum.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import torch
from torch import Tensor

from assay.compiler.ir.tensors.layout.strides import extent
from assay.compiler.runtime.call import as_no_view, untraced
from assay.compiler.runtime.expected_inputs import is_plain

Geometry: TypeAlias = tuple[Sequence[int], Sequence[int], int]
"""Sizes, strides and offset."""


def part_of_base(view: Tensor, is_alone: bool) -> Tensor:
    """What a graph is given for an input that the call writes: where it is a view, a part of its base.

    `is_alone`: as `Parted` has it. Cost: 0.1 us for what is no view, 15 us for a view.
    """
    base = view._base
    if base is None or not base.requires_grad or base.is_leaf or not _is_part(view, base):
        return view
    version = base._version
    made: Tensor = Parted.apply(base, as_no_view(view), is_alone)[1]
    torch._C._autograd._unsafe_set_version_counter((base,), (version,))  # nothing is written yet
    return made


def note_others(node: object, *others: Tensor | None) -> None:
    """Tells `Parted` whether gradients of other results come to it this time. `node` is what made the graph's input."""
    if getattr(node, "_forward_cls", None) is Parted:
        node.is_alone = all(other is None for other in others)  # type: ignore[attr-defined]


def is_watched(value: Tensor) -> bool:
    """Whether the gradient of a tensor is kept or has a hook, or that of the base of a view is kept.

    Cost: 0.3 us.
    """
    base = value._base
    return value.retains_grad or bool(value._backward_hooks) or (base is not None and base.retains_grad)


def _is_part(view: Tensor, base: Tensor) -> bool:
    """Whether a view shows elements of its base alone, as they are."""
    begin, end = base.storage_offset(), base.storage_offset() + extent(base.size(), base.stride())
    first = view.storage_offset()
    is_within = begin <= first and first + extent(view.size(), view.stride()) <= end
    return is_within and view.dtype is base.dtype and _is_taken(view) and _is_taken(base)


def _is_taken(value: Tensor) -> bool:
    """Whether the memory of a tensor holds its numbers as they are."""
    return is_plain(value) and not value.is_conj() and not value.is_neg()


class Parted(torch.autograd.Function):
    """A base as it is, and a part of it, as two results of one node.

    `is_alone`: the gradient of the part comes from the new value of the part alone. If not, eager adds a gradient of
    the part to one of the base, with zeros beside the part.
    """

    @staticmethod
    def forward(ctx: Any, base: Tensor, part: Tensor, is_alone: bool) -> tuple[Tensor, Tensor]:
        ctx.mark_dirty(base)
        ctx.base = base.size(), base.stride(), base.storage_offset()
        ctx.part = part.size(), part.stride(), part.storage_offset()
        ctx.is_alone = is_alone
        ctx.set_materialize_grads(False)
        return base, part

    @staticmethod
    @untraced
    def backward(ctx: Any, base: Tensor | None, part: Tensor | None) -> tuple[Tensor | None, None, None]:
        if part is None:
            return base, None, None
        sizes, strides, begin = ctx.base
        whole = part.new_empty_strided(sizes, strides)
        if base is None:
            whole.zero_()
        else:
            whole.copy_(base if ctx.is_alone else base + 0.0)
        sizes, strides, offset = ctx.part
        whole.as_strided(sizes, strides, offset - begin).copy_(part)
        return whole, None, None
