"""Functionalization that notes what it makes invisible, and refuses the writes that eager refuses.

Which writes to overlapping memory an operator refuses is known to its kernel alone. So a write whose target overlaps
itself or another argument is tried once on real tensors that lie alike.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx
from torch._subclasses.functional_tensor import FunctionalTensor, FunctionalTensorMode
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import _disable_current_modes

from compiler.errors import Unsupported
from compiler.ir import mutating


@dataclass(frozen=True, slots=True)
class Restrided:
    """One call that changed the shape or strides of a tensor in place."""

    target: torch._ops.OpOverload
    arguments: tuple[object, ...]


class Watching(FunctionalTensorMode):
    """Functionalization that notes what it makes invisible: in-place changes of metadata, and writes by owner.

    `graph` is what it records into. `owners` maps tensors (by identity) to whose memory they are views of; only they
    and their views are followed.
    """

    def __init__(self, graph: fx.Graph) -> None:
        super().__init__()
        self.graph = graph
        self.restrided: dict[int, list[Restrided]] = {}
        self.owners: dict[int, object] = {}
        self.writes: Counter[object] = Counter()
        self._expanded: set[int] = set()
        self._detached: set[int] = set()
        self._relaid: set[int] = set()
        self._alive: list[object] = []

    def __torch_dispatch__(
        self,
        func: Any,
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        if "resize_storage" in getattr(func, "__name__", ""):
            raise Unsupported(f"the program changes the size of a tensor's storage, by {func}")
        is_write = isinstance(func, torch._ops.OpOverload) and func._schema.is_mutable
        layout = func in KEEP_LAYOUT or func is torch.ops.aten.as_strided.default
        if self._relaid and (is_write or layout):
            self._check_relaid(func, args, kwargs or {}, layout)
        if is_write:
            check_memory(func, args, kwargs or {})
            self._check_expanded(func, args, kwargs or {})
        elif func in KEEP_LAYOUT or func is torch.ops.aten.native_dropout.default:
            check_layout(func, args[0])
        elif func is torch.ops.aten.as_strided.default:
            check_extent(args[0], args[1], args[2], args[3] if len(args) > 3 else None)
        call = mutating.seen_before(func, args, kwargs or {}) if is_write else None
        result = super().__torch_dispatch__(func, types, args, kwargs)
        if is_write:
            self._note_write(func, args, kwargs or {})
            self._relaid.update(id(value) for value in written_by(func, args, kwargs or {}) if is_relaid(value))
            check_order(func, args, kwargs or {})
        if call is not None:
            mutating.correct(call, self.graph)
        elif isinstance(func, torch._ops.OpOverload) and func.is_view:
            self._follow(args[0], result, func)
        return result

    def _note_write(self, func: torch._ops.OpOverload, args: tuple[object, ...], kwargs: dict[str, object]) -> None:
        if torch.Tag.inplace_view in func.tags and not _is_composite(func):
            self.restrided.setdefault(id(args[0]), []).append(Restrided(func, (*args[1:], *kwargs.values())))
            self._alive.append(args[0])
        for value in written_by(func, args, kwargs) if self.owners else ():
            if id(value) in self._detached:
                raise Unsupported(
                    f"the program writes an input that overlaps others through a detached view, by {func}"
                )
            if id(value) in self.owners:
                self.writes[self.owners[id(value)]] += 1

    def _follow(self, source: object, result: object, func: torch._ops.OpOverload) -> None:
        """Carries what is known of a tensor over to a view of it. Of views that leave elements out between windows
        functionalization knows no inverse either.
        """
        for made in result if isinstance(result, (list, tuple)) else (result,):
            if id(source) in self.owners:
                self.owners[id(made)] = self.owners[id(source)]
                self._alive.append(made)
                if func is torch.ops.aten.detach.default or id(source) in self._detached:
                    self._detached.add(id(made))
            if id(source) in self._relaid:
                self._relaid.add(id(made))
                self._alive.append(made)
            if func in IRREVERSIBLE or id(source) in self._expanded or overlaps_itself(made):
                self._expanded.add(id(made))
                self._alive.append(made)

    def _check_relaid(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], layout: bool) -> None:
        """Raises: Unsupported where a call asks how tensors lie that were written in place, and views of them: what is
        recorded in their place was made anew, and lies otherwise.
        """
        tensors = [value for value in pytree.arg_tree_leaves(*args, **kwargs) if isinstance(value, torch.Tensor)]
        if not any(id(value) in self._relaid for value in tensors):
            return
        storages = [value.untyped_storage()._cdata for value in {id(value): value for value in tensors}.values()]
        if layout or (func.namespace == "aten" and len(set(storages)) < len(storages)):
            raise Unsupported(f"the program calls {func}, which asks how a tensor lies that was written in place")

    def _check_expanded(self, func: torch._ops.OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Raises: Unsupported for a write through what is a view of memory that overlaps itself, by a call that eager
        allows: functionalization knows no inverse of such views.
        """
        if self._expanded and torch.Tag.inplace_view not in func.tags:
            if any(id(value) in self._expanded for value in written_by(func, args, kwargs)):
                raise Unsupported(f"the program writes memory that overlaps itself, by {func}")


def _is_composite(func: torch._ops.OpOverload) -> bool:
    return torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), "CompositeImplicitAutograd")


IRREVERSIBLE = (torch.ops.aten.unfold.default, torch.ops.aten.expand.default)
"""Views whose inverse in functionalization is a sum, or loses what lies between windows."""
KEEP_LAYOUT = frozenset(
    {
        torch.ops.aten.select_scatter.default,
        torch.ops.aten.slice_scatter.default,
        torch.ops.aten.diagonal_scatter.default,
        torch.ops.aten.as_strided_scatter.default,
    }
)
"""Operators whose result has the strides and the offset of their argument, gaps and all."""


def check_layout(func: torch._ops.OpOverload, value: torch.Tensor) -> None:
    """Raises: Unsupported where a result would not lie as eager's does: what was written in place is recorded as made
    anew, densely; and the dropout of an empty tensor is that very tensor.
    """
    if func not in KEEP_LAYOUT:
        if value.numel() == 0:
            raise Unsupported(f"the program calls {func} on an empty tensor, which returns it")
        return
    recorded = torch._from_functional_tensor(value.elem) if isinstance(value, FunctionalTensor) else value
    if recorded.stride() != value.stride() or not value.is_contiguous() or value.storage_offset() != 0:
        raise Unsupported(f"the program calls {func}, which keeps the strides and the offset of what it is called on")


def check_order(func: torch._ops.OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Raises: Unsupported where a written tensor is recorded in another order of dimensions than it has: what follows
    from it would lie otherwise than in eager.
    """
    written = [value for value in written_by(func, args, kwargs) if isinstance(value, FunctionalTensor)]
    for value in (*written, *(base for value in written if isinstance(base := value._base, FunctionalTensor))):
        if not value.is_contiguous():
            torch._sync(value)
            recorded = torch._from_functional_tensor(value.elem)
            if _order(recorded) != _order(value):
                raise Unsupported(
                    f"the program writes a tensor by {func}, which is recorded in another order of strides"
                )


def _order(value: torch.Tensor) -> list[int]:
    """The dimensions that have steps, from the longest step to the shortest."""
    sizes, strides = _hints(value.shape), _hints(value.stride())
    return sorted((dim for dim, size in enumerate(sizes) if size > 1), key=lambda dim: (-strides[dim], dim))


def is_relaid(value: torch.Tensor) -> bool:
    """Whether a tensor is recorded with other strides, or another offset, than it has."""
    if not isinstance(value, FunctionalTensor):
        return False
    recorded = torch._from_functional_tensor(value.elem)
    return (recorded.stride(), recorded.storage_offset()) != (value.stride(), value.storage_offset())


def check_extent(value: torch.Tensor, size: Sequence[int], stride: Sequence[int], offset: int | None) -> None:
    """Raises: Unsupported for a view by as_strided that may leave the tensor: it counts from the beginning of the
    storage, and what is recorded in the tensor's place has no memory but its own.
    """
    sizes, strides = _hints(value.shape), _hints(value.stride())
    extent = sum((length - 1) * step for length, step in zip(sizes, strides, strict=True)) + 1
    is_whole = _hints([value.storage_offset()])[0] == 0 and (value.numel() == 0 or extent == value.numel())
    end = (offset or 0) + sum((length - 1) * step for length, step in zip(_hints(size), _hints(stride), strict=True))
    if not is_whole or (0 not in _hints(size) and end >= value.numel()):
        raise Unsupported(
            "the program takes a view by as_strided that may leave the tensor for the rest of its storage"
        )


def check_memory(func: torch._ops.OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Looks at writes whose target may overlap itself or another argument.

    Raises: what eager raises if the operator refuses such memory; Unsupported for a write to memory that overlaps
    itself, of which functionalization knows no inverse.
    """
    others = [v for v in pytree.arg_tree_leaves(*args, **kwargs) if isinstance(v, torch.Tensor)]
    targets = list(written_by(func, args, kwargs))
    if func.namespace not in ("aten", "prims") and any(_is_of_another_kind(target) for target in targets):
        raise Unsupported(f"the program calls {func}, which writes a view of another dtype than its base's")
    is_self_overlapping = any(overlaps_itself(target) for target in targets)
    storages = {id(target): target.untyped_storage()._cdata for target in targets}
    is_shared = any(
        other.untyped_storage()._cdata in storages.values() for other in others if id(other) not in storages
    )
    if is_self_overlapping or is_shared or len(set(storages.values())) < len(storages):
        refuse_as_eager(func, args, kwargs)
    if is_shared and any(_may_read(target, other) for target in targets for other in others):
        raise Unsupported(f"the program reads what it writes in one call of {func}, element by element")
    is_random = torch.Tag.nondeterministic_seeded in func.tags
    if is_random and not all(target.is_contiguous() and target._base is None for target in targets):
        raise Unsupported(f"the program fills a view, or memory in another order, by {func}, which draws in its order")
    if is_self_overlapping and torch.Tag.inplace_view not in func.tags:
        raise Unsupported(f"the program writes memory that overlaps itself, by {func}")


def _may_read(target: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether an argument may have bytes of the written one in another order."""
    if other is target or other.untyped_storage()._cdata != target.untyped_storage()._cdata:
        return False
    if _placed(other) == _placed(target) or not (target.numel() and other.numel()):
        return False
    (start, end), (other_start, other_end) = _interval(target), _interval(other)
    return start < other_end and other_start < end


def _placed(value: torch.Tensor) -> tuple[object, ...]:
    return value.dtype, value.shape, value.stride(), value.storage_offset()


def _interval(value: torch.Tensor) -> tuple[int, int]:
    """The bytes of the storage between the first and the last element."""
    sizes, strides, (start,) = _hints(value.shape), _hints(value.stride()), _hints((value.storage_offset(),))
    end = start + sum((size - 1) * step for size, step in zip(sizes, strides, strict=True)) + 1
    return start * value.element_size(), end * value.element_size()


def _is_of_another_kind(value: torch.Tensor) -> bool:
    base = value._base
    return base is not None and (base.dtype, base.is_conj(), base.is_neg()) != (
        value.dtype,
        value.is_conj(),
        value.is_neg(),
    )


def overlaps_itself(target: torch.Tensor) -> bool:
    pairs = zip(target.shape, target.stride(), strict=True)
    return any(not isinstance(step, torch.SymInt) and step == 0 and _hints([size])[0] > 1 for size, step in pairs)


def written_by(func: torch._ops.OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterator[torch.Tensor]:
    """The tensors that a call writes."""
    for position, argument in enumerate(func._schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            value = args[position] if position < len(args) else kwargs.get(argument.name)
            yield from (v for v in pytree.tree_leaves(value) if isinstance(v, torch.Tensor))


def refuse_as_eager(func: torch._ops.OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Raises: what eager raises if the operator refuses memory that overlaps as its arguments' does."""
    with _disable_current_modes(), torch.random.fork_rng(devices=[]):
        memory: dict[int, torch.Tensor] = {}
        real_args, real_kwargs = pytree.tree_map_only(torch.Tensor, lambda v: _laid_alike(v, memory), (args, kwargs))
        try:
            func(*real_args, **real_kwargs)
        except RuntimeError as error:
            if str(error).startswith("unsupported operation"):
                raise


def _laid_alike(value: torch.Tensor, memory: dict[int, torch.Tensor]) -> torch.Tensor:
    """A real tensor of zeros with the layout of `value`, over one piece of memory for each storage."""
    storage = value.untyped_storage()
    sizes, strides, offset = [_hints(part) for part in (value.shape, value.stride(), (value.storage_offset(),))]
    if storage._cdata not in memory:
        memory[storage._cdata] = torch.zeros(0, dtype=torch.uint8, device=value.device)
    extent = offset[0] + sum((size - 1) * step for size, step in zip(sizes, strides, strict=True)) + 1
    real = memory[storage._cdata].untyped_storage()
    if real.nbytes() < extent * value.element_size():
        real.resize_(extent * value.element_size())
        memory[storage._cdata].set_(real, 0, (real.nbytes(),), (1,)).zero_()
    return torch.empty(0, dtype=value.dtype, device=value.device).set_(real, offset[0], sizes, strides)


def _hints(values: Sequence[int | torch.SymInt]) -> list[int]:
    return [value.node.hint if isinstance(value, torch.SymInt) else value for value in values]
