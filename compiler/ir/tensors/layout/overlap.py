"""Which inputs of a call overlap in memory, decided exactly: the part of a call's meaning that no guard on its tensors
one by one can see.

    a = base[:4]; b = base[2:]      overlaps([a, b]) == ((0, 1),)
    a = base[::2]; b = base[1::2]   overlaps([a, b]) == ()
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from itertools import combinations

import torch

from assay.compiler.ir.tensors.layout.shared_bytes import share_a_byte
from assay.compiler.ir.tensors.wrappers import Recipe, inner_tensors, is_wrapper

is_alias: Callable[[torch.Tensor, torch.Tensor], bool] = torch._C._is_alias_of  # type: ignore[attr-defined]
"""Whether two tensors have one storage."""

PAIRS = 16
"""Up to how many pairs of leaves are asked one by one whether they share a storage; beyond, storages are counted."""


def overlap_test(written: tuple[int, ...], versions: bool) -> Callable[[Sequence[object]], bool]:
    """A test of a call's leaves: whether one at the positions `written` overlaps with another leaf.

    With `versions`, leaves that autograd knows as views of one tensor count as overlapping: a write of one makes the
    version of all grow, which backward sees.

    Cost: one look at every leaf's storage, so only programs that write their inputs ask; more where storages are
    shared.
    """

    pairs: list[tuple[int, int]] | None = None
    tensors: list[int] = []
    wrappers: list[int] | None = None

    def test(args: Sequence[object]) -> bool:
        nonlocal pairs, wrappers
        if wrappers is None:
            wrappers = [position for position, value in enumerate(args) if is_wrapper(value)]
        if wrappers:
            return _overlap_inside(written, args)
        if len(written) * len(args) > PAIRS:
            if not tensors:
                tensors.extend(_tensors(args))
            return not _are_apart(tensors, args) and _overlap_by_owner(written, args, versions)
        if pairs is None:
            pairs = list(pairs_of(written, _tensors(args)))
        for p, q in pairs:
            if is_alias(args[p], args[q]) and _is_related(args[p], args[q], versions):  # type: ignore[arg-type]
                return True
        return False

    return test


def _tensors(args: Sequence[object]) -> list[int]:
    """The positions of a call's tensors, which are the same at every call."""
    return [position for position, value in enumerate(args) if isinstance(value, torch.Tensor)]


def pairs_of(written: Sequence[int], tensors: Sequence[int]) -> Iterator[tuple[int, int]]:
    """The position of each written leaf with that of each other tensor, each pair once."""
    return ((p, q) for p in written for q in tensors if q != p and not (q in written and q < p))


def _are_apart(tensors: list[int], args: Sequence[object]) -> bool:
    """Whether the tensors surely have a storage each: none begins where another does. Empty ones begin nowhere."""
    given = tuple(map(args.__getitem__, tensors))
    starts = set(map(_start if any(map(_offset, given)) else _address, given))  # type: ignore[arg-type]
    return len(starts) == len(tensors) and 0 not in starts


_address, _offset = torch.Tensor.data_ptr, torch.Tensor.storage_offset


def _start(value: torch.Tensor) -> int:
    """The address of a tensor's storage; 0 where the tensor has no elements, and so no address."""
    address = value.data_ptr()
    return address and address - int(value.storage_offset()) * value.element_size()


def _overlap_by_owner(written: tuple[int, ...], args: Sequence[object], versions: bool) -> bool:
    owners = [a.untyped_storage()._cdata if isinstance(a, torch.Tensor) else None for a in args]
    if len(set(owners)) == len(owners):
        return False
    shared = [p for p in written if owners.count(owners[p]) > 1]
    return any(
        _is_related(args[p], args[q], versions)  # type: ignore[arg-type]
        for p in shared
        for q, owner in enumerate(owners)
        if q != p and owner == owners[p]
    )


def _overlap_inside(written: tuple[int, ...], args: Sequence[object]) -> bool:
    """Whether a written leaf shares a storage with another. Of a wrapper its inner tensors count, each as a leaf."""
    owners = [_storages(value) for value in args]
    if any(len(set(owners[p])) < len(owners[p]) for p in written):
        return True
    return any(set(owners[p]) & set(owners[q]) for p in written for q, _ in enumerate(args) if q != p)


def share_inner(values: Sequence[object]) -> bool:
    """Whether an inner tensor of a wrapper shares its storage with another of some values."""
    wrappers = tuple(position for position, value in enumerate(values) if is_wrapper(value))
    return bool(wrappers) and _overlap_inside(wrappers, values)


def _storages(value: object) -> list[int]:
    """The storages of a tensor; of a wrapper those of its inner tensors."""
    inner = inner_tensors(value) if isinstance(value, torch.Tensor) else ()
    return [each.untyped_storage()._cdata for each in inner]


def overlaps(values: Sequence[object], versions: bool) -> tuple[tuple[int, ...], ...]:
    """The positions of tensors that overlap, in groups: each overlaps with some other of its group."""
    owners: dict[int, list[int]] = {}
    for position, value in enumerate(values):
        if isinstance(value, torch.Tensor) and value.layout is torch.strided:
            owners.setdefault(value.untyped_storage()._cdata, []).append(position)
    return tuple(
        group for sharing in owners.values() if len(sharing) > 1 for group in _groups(sharing, values, versions)
    )


def _groups(positions: list[int], values: Sequence[object], versions: bool) -> Iterator[tuple[int, ...]]:
    """The connected components of "overlaps with", of more than one member."""
    component = {position: {position} for position in positions}
    for p, q in combinations(positions, 2):
        if component[p] is not component[q] and _is_related(values[p], values[q], versions):  # type: ignore[arg-type]
            component[p] |= component[q]
            for member in component[q]:
                component[member] = component[p]
    for group in {id(group): group for group in component.values()}.values():
        if len(group) > 1:
            yield tuple(sorted(group))


def _is_related(one: torch.Tensor, other: torch.Tensor, versions: bool) -> bool:
    if versions and (one._base is not None or other._base is not None):
        roots = [tensor if tensor._base is None else tensor._base for tensor in (one, other)]
        if roots[0] is roots[1]:
            return True
    return share_a_byte(one, other)


def layout_key(values: Sequence[object]) -> Hashable:
    """All that a program specialised to overlapping inputs depends on: layouts, and how autograd relates the inputs."""
    bases = [v._base if isinstance(v, torch.Tensor) else None for v in values]
    return tuple(_layout(value, values, base, bases) for value, base in zip(values, bases, strict=True))


def _layout(
    value: object, values: Sequence[object], base: torch.Tensor | None, bases: list[torch.Tensor | None]
) -> Hashable:
    if not isinstance(value, torch.Tensor):
        return value
    return (
        _geometry(value),
        value.requires_grad,
        is_leaf(value),
        next((i for i, v in enumerate(values) if base is not None and v is base), None),
        next((i for i, b in enumerate(bases) if base is not None and b is base), None),
        next(i for i, v in enumerate(values) if v is value),
        None if base is None else (_geometry(base), base.requires_grad, is_leaf(base)),
    )


def is_leaf(value: torch.Tensor) -> bool | None:
    """None where autograd refuses to say: a view taken without gradients, whose base has been written since."""
    try:
        return value.is_leaf
    except RuntimeError:
        return None


def _geometry(value: torch.Tensor) -> Hashable:
    bits = value.is_conj(), value.is_neg(), value.is_inference()
    if is_wrapper(value):
        recipe = Recipe.of(value)
        inner = tuple(_geometry(getattr(value, name)) for name in recipe.names)
        return recipe.key(), tuple(value.shape), bits, inner
    return value.dtype, tuple(value.shape), value.stride(), value.storage_offset(), bits
