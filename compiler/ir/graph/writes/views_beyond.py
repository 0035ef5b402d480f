"""`ViewsBeyond`: views by `as_strided` that leave an input for the rest of its storage.

    y = x[2:8].as_strided((3,), (8,), 0)        reads elements 0, 8 and 16 of the storage of x

A recording knows no elements of an input but the input's own. Such a view can be returned, as whoever calls makes it
again of the real tensor. A graph that reads it is refused, and so is a later write to its memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx
from torch.fx.experimental.proxy_tensor import PythonKeyTracer, get_proxy_slot

from assay.compiler.errors import Unsupported
from assay.compiler.ir.tensors.layout.strides import extent, hint, hints
from assay.compiler.ir.tensors.mutating_operators import inner_of

BEYOND = "is_beyond_its_tensor"
"""Marks, in the metadata of a node, a view that leaves its tensor."""

TAKEN_OF = "is_taken_of"
"""Names, in the metadata of a node that is recorded as a view of a whole memory, the view that the program took it of.
A gradient reaches the elements of that one alone."""


@dataclass(slots=True)
class ViewsBeyond:
    """The storages of inputs of which such views were taken."""

    storages: set[int] = field(default_factory=set)

    def is_taken_by(self, value: torch.Tensor, given: Sequence[Any], is_input: bool) -> bool:
        """Notes a call of `as_strided` on a value, with what else it was given, if its result leaves the value; and
        returns whether it does. `is_input` says whether the value is an input's memory.

        Raises: Unsupported where no such view can be returned: of a value that is no input's, or that was written.
        """
        size, stride, offset = hints(given[0]), hints(given[1]), given[2] if len(given) > 2 else None
        end = hint(value.storage_offset() if offset is None else offset) + extent(size, stride)
        if _is_whole(value) and (0 in size or end <= value.numel()):
            return False
        recorded = inner_of(value)
        if not is_input or _lies(recorded) != _lies(value) or _elements(recorded) < end:
            raise _refusal()
        self.storages.add(value.untyped_storage()._cdata)
        return True

    def of_its_base(
        self, value: torch.Tensor, size: Sequence[Any], stride: Sequence[Any], storage_offset: Any = None
    ) -> tuple[Any, ...]:
        """The arguments of `as_strided` on a value, or on its base where that is all of a storage. The view is the same
        one, and leaves nothing that a graph knows.

        After a write autograd would make a view again of the value, whose gradients are those of its own elements.
        Where the view has others, its memory may not be written.
        """
        base, begin = value._base, value.storage_offset() if storage_offset is None else storage_offset
        if base is None or not _is_whole(base) or base.dtype != value.dtype or _bits(base) != _bits(value):
            return value, size, stride, *([] if storage_offset is None else [storage_offset])
        if torch.is_grad_enabled() and not _holds(value, hints(size), hints(stride), hint(begin)):
            self.storages.add(value.untyped_storage()._cdata)
        return base, size, stride, begin

    def check_writes(self, written: Iterable[torch.Tensor]) -> None:
        """Raises: Unsupported for a write to memory of which such a view was taken."""
        if self.storages and any(value.untyped_storage()._cdata in self.storages for value in written):
            raise _refusal()


def mark_by_strides(
    view: torch.Tensor, base: torch.Tensor, taken: torch.Tensor, is_beyond: bool, tracer: PythonKeyTracer
) -> None:
    """Marks the node that a view by `as_strided` is recorded as: whether it leaves its tensor, and of what it was taken
    where that is not the `base` that it is recorded of."""
    node = _node_of(view, tracer)
    if is_beyond:
        node.meta[BEYOND] = True
    if base is not taken:
        node.meta[TAKEN_OF] = _node_of(taken, tracer)


def _node_of(value: torch.Tensor, tracer: PythonKeyTracer) -> fx.Node:
    node = get_proxy_slot(inner_of(value), tracer, None, lambda slot: slot.proxy.node)
    assert node is not None
    return node


def check_unread(graph: fx.Graph, is_view: Callable[[fx.Node], bool]) -> None:
    """Raises: Unsupported for a finished graph that reads such a view. It may return it, or a view of it."""
    pending, found = [node for node in graph.nodes if BEYOND in node.meta], set[fx.Node]()
    while pending:
        if (node := pending.pop()) not in found:
            found.add(node)
            pending += [user for user in node.users if user.op != "output"]
    if not all(map(is_view, found)):
        raise _refusal()


def check_backward(graph: fx.Graph, forward: Iterable[fx.Node], gradients: Iterable[fx.Node]) -> None:
    """Raises: Unsupported, which says so, where gradients are made of such a view and no result of forward is."""
    marked = {node for node in graph.nodes if BEYOND in node.meta}
    if marked and marked & _behind(gradients) and not marked & _behind(forward):
        raise Unsupported(f"its backward is none that is compiled: {_refusal()}")


def _behind(results: Iterable[fx.Node]) -> set[fx.Node]:
    """The nodes that results are made of, themselves too."""
    pending, found = list(results), set[fx.Node]()
    while pending:
        if (node := pending.pop()) not in found:
            found.add(node)
            pending += node.all_input_nodes
    return found


def _refusal() -> Unsupported:
    return Unsupported("the program takes a view by as_strided that may leave the tensor for the rest of its storage")


def _is_whole(value: torch.Tensor) -> bool:
    """Whether a tensor is all of a storage, from its beginning on."""
    is_dense = value.numel() == 0 or extent(hints(value.shape), hints(value.stride())) == value.numel()
    return is_dense and hint(value.storage_offset()) == 0


def _holds(value: torch.Tensor, size: Sequence[int], stride: Sequence[int], begin: int) -> bool:
    """Whether all elements of such a view are the value's own, which lies without gaps."""
    first, length = hint(value.storage_offset()), extent(hints(value.shape), hints(value.stride()))
    is_within = first <= begin and begin + extent(size, stride) <= first + length
    return 0 in size or (length == value.numel() and is_within)


def _bits(value: torch.Tensor) -> tuple[bool, bool]:
    return value.is_conj(), value.is_neg()


def _lies(value: torch.Tensor) -> tuple[object, ...]:
    return value.stride(), value.storage_offset()


def _elements(recorded: torch.Tensor) -> int:
    """How many elements the storage of a recorded value has."""
    return hint(recorded.untyped_storage().nbytes()) // recorded.element_size()
