"""What a program relies on of where its inputs begin in their storages, which neither shape nor strides say.

x + x.storage_offset()            the very offset of x
x.as_strided([4], [1], 2)         the very offset: it counts from the beginning of the storage
torch.view_as_complex(x)          that the offset is even, as it is now

A program that asks for none of these serves an input wherever it begins.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from assay.compiler.ir.graph.roles import Begins, CallInput
from assay.compiler.ir.tensors.layout.strides import hint

aten = torch.ops.aten

EXACTLY = 0
"""In the place of a divisor: the number itself is relied on."""

FROM_THE_STORAGE = {
    aten.as_strided.default: 3,
    aten.as_strided_.default: 3,
    aten.as_strided_copy.default: 3,
    aten.as_strided_scatter.default: 4,
}
"""Operators that may be told an offset from the beginning of the storage, and which of their arguments it is."""
LIKE_THEIR_ARGUMENT = (aten.slice_scatter.default, aten.select_scatter.default, aten.diagonal_scatter.default)
"""Operators whose result begins in its storage where their argument does."""
READ_AT_ONCE_BYTES = 16
"""How much a GPU's thread reads at once, of what begins at a multiple of it."""

READ_BY = (torch.Tensor.storage_offset, aten.sym_storage_offset, aten.sym_storage_offset.default)
"""Calls that give the offset as a number."""
STORAGE_BY = (torch.Tensor.untyped_storage, torch.Tensor.storage, torch.Tensor._typed_storage)
"""Calls that give the storage itself."""


def divisor_of(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> int | None:
    """By what the offset of a call's first argument is divided with the remainder that the call relies on; `EXACTLY`
    for the offset itself, None where it relies on nothing."""
    if func in FROM_THE_STORAGE:
        place = FROM_THE_STORAGE[func]
        offset = args[place] if len(args) > place else kwargs.get("storage_offset")
        return None if offset is None and func is not aten.as_strided_scatter.default else EXACTLY
    if func in LIKE_THEIR_ARGUMENT:
        return EXACTLY
    if func is aten.view_as_complex.default:
        return 2
    if func is aten.view.dtype:
        ratio: int = args[1].itemsize // args[0].element_size()
        return ratio if ratio > 1 else None
    if func is aten.native_dropout.default and args[0].is_cuda:  # which draws as many numbers at once as it reads
        return READ_AT_ONCE_BYTES // args[0].element_size()
    return None


class OffsetsRead(TorchFunctionMode):
    """While it is entered, `note` is told of each tensor whose offset is read as a number, `refuse` of each whose
    storage is asked for."""

    def __init__(self, note: Callable[[torch.Tensor], None], refuse: Callable[[torch.Tensor], None]) -> None:
        super().__init__()
        self._note, self._refuse = note, refuse

    def __torch_function__(
        self, func: Callable[..., Any], types: Sequence[type], args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:  # fmt: skip
        if func in READ_BY and isinstance(args[0].storage_offset(), int):  # a symbol stays one
            self._note(args[0])
        elif func in STORAGE_BY:
            self._refuse(args[0])
        return func(*args, **kwargs or {})


def begins(role: CallInput, offset: int | torch.SymInt, divisors: Collection[int]) -> Iterator[Begins]:
    """What a call relies on of an input, for its calling convention to look at. Of a symbolic offset it is guarded, as
    what is relied on of symbolic sizes is."""
    if isinstance(offset, torch.SymInt):
        _guard(offset, divisors)
    elif EXACTLY in divisors:
        yield Begins(role, offset)
    else:
        yield from (Begins(role, offset % divisor, divisor) for divisor in sorted(divisors))


def _guard(offset: torch.SymInt, divisors: Collection[int]) -> None:
    for divisor in divisors:
        bool(offset == hint(offset) if divisor == EXACTLY else offset % divisor == hint(offset) % divisor)
