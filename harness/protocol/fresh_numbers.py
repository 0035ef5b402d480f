"""Other numbers of the same kind for a case: what a later call is given, and what its parameters become.

A call's numbers are what the case's own function makes under another seed. Where it draws none, its floating numbers
are moved: each is multiplied by something from 1/2 to 1, which keeps signs, zeros, infinities, and ranges like [0, 1].
Integers that the case does not draw stay as they are: they may be indices, labels or sizes.

Parameters and other state move by an eighth of a neighbour, `p + roll(p, k) / 8`; those that are all zero become a
small number. It is done once, in the program's own dtype; a float64 run is then given the very same numbers. Numbers
that are all whole and not all alike stay: they are tables of positions or masks.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, UntypedStorage
from torch.utils._pytree import tree_map_only

from assay.harness.calls.clone import Call, CloneError, copy_call, is_plain
from assay.harness.calls.memory import aliases, has_memory, number_bits
from assay.harness.calls.tree import Tree, walk, walk_call

MADE_BYTES = 1 << 28
"""A case whose program holds more is not made again for other numbers: they are moved."""

INDICES, NO_INDEX = (torch.int32, torch.int64), -(1 << 30)
"""The dtypes that indices have, and a number which is none of anything."""

Make = Callable[[int], Call]


def nothing(*args: Any, **kwargs: Any) -> None:
    """The callable of a call of which only the arguments matter."""


def with_numbers(own: Call, make: Make, which: int) -> Call:
    """A call like `own` with the numbers `which`: its function, and arguments of their own.

    `make(which)` makes the case under another seed. Raises: CloneError for arguments that cannot be copied.
    """
    if which == 1 or is_tied(own):
        return own
    drawn = _drawn(own, make, which)
    args, kwargs = (drawn.args, drawn.kwargs) if drawn is not None else _moved_arguments(own, which)
    return dataclasses.replace(own, args=args, kwargs=kwargs)


def longer(own: Call, other: Call) -> Call:
    """A call with the rows of `other` behind its own, in each tensor that has the batch's dimension."""
    mine, more = walk((own.args, own.kwargs), "input"), walk((other.args, other.kwargs), "input")
    rows = _rows(mine)
    if rows is None or is_tied(own) or aliases(mine.tensors):
        return own
    grown = {
        id(tensor): _joined(tensor, more.tensors[path])
        for path, tensor in mine.tensors.items()
        if is_plain(tensor) and tensor.dim() and len(tensor) == rows and path in more.tensors
    }
    args, kwargs = tree_map_only(Tensor, lambda tensor: grown.get(id(tensor), tensor), (own.args, own.kwargs))
    return dataclasses.replace(own, args=args, kwargs=kwargs)


def first_rows(own: Call, count: int) -> Call:
    """A call with so many rows alone of each tensor that has the batch's dimension."""
    mine = walk((own.args, own.kwargs), "input")
    rows = _rows(mine)
    if rows is None or rows <= count or is_tied(own) or aliases(mine.tensors):
        return own

    def first(tensor: Tensor) -> Tensor:
        if not is_plain(tensor) or not tensor.dim() or len(tensor) != rows:
            return tensor
        return tensor.detach()[:count].clone().requires_grad_(tensor.requires_grad)

    args, kwargs = tree_map_only(Tensor, first, (own.args, own.kwargs))
    return dataclasses.replace(own, args=args, kwargs=kwargs)


def turned(call: Call) -> Call:
    """The same call, of which each floating argument requires a gradient if it required none, and none if it did.

    Those that share memory stay as they are, and so do parameters.
    """
    tensors = walk((call.args, call.kwargs), "input").tensors
    for tensor in () if aliases(tensors) else tensors.values():
        if _is_own_leaf(tensor) and tensor.is_floating_point():
            tensor.requires_grad_(not tensor.requires_grad)
    return call


def relaid(call: Call) -> Call:
    """The same arguments, of which the last two dimensions lie in the other order in memory. Those that share memory,
    and what autograd or a class knows more of, stay as they are."""
    return _with_own_leaves(call, lambda tensor: tensor.mT.contiguous().mT if tensor.dim() > 1 else tensor)


def expanded(call: Call) -> Call:
    """The same arguments, of which the first row stands for all rows; others stay, as in `relaid`. The memory of all
    rows is there: a kernel of the program's own may read on from the first element."""

    def expand(tensor: Tensor) -> Tensor:
        if not tensor.dim() or len(tensor) < 2:
            return tensor
        rows = tensor.contiguous()
        return rows.new_empty(0).set_(rows.untyped_storage(), 0, rows.size(), (0, *rows.stride()[1:]))

    return _with_own_leaves(call, expand)


def blotted(call: Call) -> Call:
    """The same arguments, with NaN for the number in the middle of each floating one; others stay, as in `relaid`."""

    def blot(tensor: Tensor) -> Tensor:
        if not tensor.is_floating_point() or not tensor.numel() or tensor.element_size() < 2:
            return tensor
        return tensor.masked_fill_(_middle(tensor), torch.nan)

    return _with_own_leaves(call, blot)


def strayed(call: Call) -> Call:
    """The same arguments, with a number that is no index in the middle of each that has whole numbers; others stay, as
    in `relaid`. It is below zero: where it is a size, torch refuses it too."""

    def stray(tensor: Tensor) -> Tensor:
        return tensor.masked_fill_(_middle(tensor), NO_INDEX) if tensor.dtype in INDICES and tensor.numel() else tensor

    return _with_own_leaves(call, stray)


def _middle(tensor: Tensor) -> Tensor:
    """Where the element in the middle is."""
    return torch.arange(tensor.numel(), device=tensor.device).reshape(tensor.shape) == tensor.numel() // 2


def _with_own_leaves(call: Call, change: Callable[[Tensor], Tensor]) -> Call:
    """The same arguments, with what `change` makes of a copy of each that is a tensor of its own."""
    if aliases(walk((call.args, call.kwargs), "input").tensors):
        return call

    def changed(tensor: Tensor) -> Tensor:
        is_lazy = tensor.is_conj() or tensor.is_neg()
        if not _is_own_leaf(tensor) or is_lazy or not has_memory(tensor):
            return tensor
        return change(tensor.detach().clone()).requires_grad_(tensor.requires_grad)

    args, kwargs = tree_map_only(Tensor, changed, (call.args, call.kwargs))
    return dataclasses.replace(call, args=args, kwargs=kwargs)


def _is_own_leaf(tensor: Tensor) -> bool:
    """Whether autograd knows nothing of a plain tensor but whether it requires a gradient."""
    is_alone = type(tensor) is Tensor and is_plain(tensor) and tensor._base is None
    return is_alone and tensor.is_leaf and not tensor.is_inference()


def placed(call: Call) -> Call:
    """The same arguments in tensors that begin behind the beginning of their storage, one behind the other: those of a
    dtype are in one storage. Those that share memory, and what autograd or a class knows more of, stay where they
    are."""
    tensors = walk((call.args, call.kwargs), "input").tensors
    if aliases(tensors):
        return call
    moved = _one_behind_the_other([tensor for tensor in tensors.values() if _is_placeable(tensor)])
    args, kwargs = tree_map_only(Tensor, lambda tensor: moved.get(id(tensor), tensor), (call.args, call.kwargs))
    return dataclasses.replace(call, args=args, kwargs=kwargs)


def _is_placeable(tensor: Tensor) -> bool:
    is_lazy = tensor.is_conj() or tensor.is_neg()
    return _is_own_leaf(tensor) and not is_lazy and bool(tensor.numel()) and has_memory(tensor)


def _one_behind_the_other(tensors: Sequence[Tensor]) -> dict[int, Tensor]:
    """Copies by the id of each tensor. One element lies free before each, a one: a program may read it, by strides of
    its own, and memory that was never written is another each time."""
    found: dict[int, Tensor] = {}
    for kind in dict.fromkeys((tensor.dtype, tensor.device) for tensor in tensors):
        own = [tensor for tensor in tensors if (tensor.dtype, tensor.device) == kind]
        sizes = [1 + tensor.untyped_storage().nbytes() // tensor.element_size() for tensor in own]
        room = own[0].detach().new_ones(sum(sizes)).untyped_storage()
        room, begins = _fixed(room) if len(own) > 1 else room, itertools.accumulate(sizes, initial=0)
        for tensor, begin in zip(own, begins, strict=False):
            start = begin + 1 + tensor.storage_offset()
            moved = tensor.detach().new_empty(0).set_(room, start, tensor.size(), tensor.stride())
            found[id(tensor)] = moved.copy_(tensor.detach()).requires_grad_(tensor.requires_grad)
    return found


def _fixed(storage: UntypedStorage) -> UntypedStorage:
    """The same memory, of a size that nobody changes: who frees one tensor there would free all. On a CPU alone."""
    if storage.device.type != "cpu":
        return storage
    return torch.from_numpy(torch.empty(0, dtype=torch.uint8).set_(storage).numpy()).untyped_storage()


def _rows(tree: Tree) -> int | None:
    """The size of the batch: that of the first dimension of the first argument that has one; None without one."""
    return next((len(tensor) for tensor in tree.tensors.values() if is_plain(tensor) and tensor.dim()), None)


def _joined(one: Tensor, other: Tensor) -> Tensor:
    joined = torch.cat([one.detach(), other.detach()])
    return joined.requires_grad_(one.requires_grad)


def is_tied(call: Call) -> bool:
    """Whether an argument lies in the memory of what the function holds, so that it cannot be replaced alone."""
    held = {_place(tensor) for tensor in walk_call(call.function, (), {}).tensors.values() if is_plain(tensor)}
    given = walk((call.args, call.kwargs), "input").tensors.values()
    return any(is_plain(tensor) and _place(tensor) in held for tensor in given)


def _place(tensor: Tensor) -> int:
    return tensor.untyped_storage()._cdata


def _drawn(own: Call, make: Make, which: int) -> Call | None:
    """The case under another seed, if it draws other numbers of the same shapes."""
    held = walk_call(own.function, (), {}).tensors.values()
    if sum(tensor.numel() * tensor.element_size() for tensor in held) > MADE_BYTES:
        return None
    made = make(which)
    mine, theirs = walk((own.args, own.kwargs), "input"), walk((made.args, made.kwargs), "input")
    if mine.kinds != theirs.kinds or repr(mine.scalars) != repr(theirs.scalars) or is_tied(made):
        return None
    pairs = [(tensor, theirs.tensors[path]) for path, tensor in mine.tensors.items()]
    if not all(_is_alike(one, other) for one, other in pairs):
        return None
    return made if any(_is_other(one, other) for one, other in pairs) else None


def _is_alike(one: Tensor, other: Tensor) -> bool:
    """Whether a tensor can take another's place: everything but its numbers."""
    if not (is_plain(one) and is_plain(other)):
        return False
    names = ("shape", "dtype", "device", "requires_grad")
    return all(getattr(one, name) == getattr(other, name) for name in names) and one.stride() == other.stride()


def _is_other(one: Tensor, other: Tensor) -> bool:
    return not torch.equal(number_bits(one.detach()), number_bits(other.detach()))


def _moved_arguments(own: Call, which: int) -> tuple[tuple[Any, ...], dict[str, Any]]:
    generator = torch.Generator().manual_seed(which)

    def move(flat: Tensor) -> Tensor:
        if not flat.is_floating_point() or flat.element_size() < 2:
            return flat.clone()
        factor = torch.rand(flat.shape, generator=generator) / 2 + 0.5
        return flat * factor.to(flat.device, flat.dtype)

    try:
        moved = copy_call(Call(nothing, own.args, own.kwargs, own.leaves), move)
    except CloneError:  # tensors of several dtypes in one storage: what they are is more than numbers
        return own.args, own.kwargs
    return moved.args, moved.kwargs


def moved_state(pristine: Tensor, which: int) -> Tensor | None:
    """What a tensor that the program holds becomes before an act that moves the state for the `which`th time; None if
    it stays as it is."""
    if not (is_plain(pristine) and pristine.is_floating_point() and pristine.numel() and pristine.element_size() > 1):
        return None
    numbers = pristine.detach().resolve_neg()
    is_constant = bool((numbers == numbers.reshape(-1)[0]).all())
    if not is_constant and bool((numbers == numbers.trunc()).all()):
        return None
    if is_constant and not bool(numbers.any()):
        return torch.full_like(numbers, which / 64)
    moved = numbers + numbers.roll(which) / 8
    return torch.where(moved.isfinite() & (numbers.abs() < 1e4), moved, numbers)


def state_of(function: Callable[..., Any]) -> Mapping[str, Tensor]:
    """What the function holds and an act may move: leaves with memory of their own, each by its first path."""
    unique = {id(tensor): (path, tensor) for path, tensor in reversed(walk_call(function, (), {}).tensors.items())}
    return {
        path: tensor
        for path, tensor in unique.values()
        if is_plain(tensor) and tensor.is_leaf and tensor._base is None and not tensor.is_inference()
    }
