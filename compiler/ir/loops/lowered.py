"""Lowered graphs: every node as elements of logical tensors, before anything is fused or laid out.

    Lowered    := inputs, symbols, definitions: (Definition, ...), outputs, constants, counts, hints
    Definition := Generated(tensor, expr)         tensor[d0, d1, ...] = expr, over `Element`s of other tensors
                | Viewed(tensor, base, at, call)  tensor[d0, d1, ...] = base[at]
                | Scattered(tensor, base, over, at, update, mode)
                                                  tensor = base; for d0, d1, ... in over: tensor[at] (= | += ...) update
                | Called(name, tensor, call)      an operator that ATen runs
                | Sized(name, value)              a size computed from sizes

The coordinates of every tensor are named d0, d1, ...; variables bound by a `Reduce` are unique in the graph. A complex
tensor has one more, its lane: 0 is the real and 1 the imaginary part, so that no expression is a complex number. The
complex conjugate of a view is what it reads, with lane 1 negated.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch

from assay.compiler.ir.loops.index import Index, Int, Symbol
from assay.compiler.ir.loops.kernel import CallAten, Counts, Expr, Mode, Source


@dataclass(frozen=True, slots=True)
class Tensor:
    """What is known of a value: its size and the strides and offset that eager gives it."""

    name: str
    shape: tuple[Index, ...]
    stride: tuple[Index, ...]
    offset: Index
    dtype: torch.dtype
    device: torch.device


@dataclass(frozen=True, slots=True)
class Generated:
    """`is_rounding`: the program itself asks for this dtype (a conversion), so its rounding is never skipped."""

    tensor: Tensor
    expr: Expr
    origin: str
    is_rounding: bool = False


@dataclass(frozen=True, slots=True)
class Viewed:
    """A view: where its elements lie in the base, and the call that makes it."""

    tensor: Tensor
    base: str
    at: tuple[Index, ...]
    call: CallAten
    is_conjugate: bool = False


@dataclass(frozen=True, slots=True)
class Scattered:
    """A tensor that begins as another, which has no other use, and is updated at places that are data.

    `over` are the sizes of the space of updates, whose coordinates are d0, d1, ... too; `update` begins with the
    bindings whose variables `at` mentions.
    """

    tensor: Tensor
    base: str
    over: tuple[Index, ...]
    at: tuple[Index, ...]
    update: Expr
    mode: Mode
    origin: str


@dataclass(frozen=True, slots=True)
class Called:
    """A call to ATen; `tensor` is None for results that are not one strided tensor. `has_effect`: never dropped,
    and in order with the others that have one."""

    name: str
    tensor: Tensor | None
    call: CallAten
    has_effect: bool


@dataclass(frozen=True, slots=True)
class Sized:
    name: str
    value: Index


Definition: TypeAlias = Generated | Viewed | Scattered | Called | Sized


@dataclass(frozen=True, slots=True)
class Lowered:
    """`hints` are the sizes at trace time: for decisions of cost, never of meaning. `is_ordered`: run as written.
    `saved` are the results that another graph takes to lie as they were traced."""

    inputs: tuple[str, ...]
    tensors: Mapping[str, Tensor]
    symbols: Mapping[str, Source]
    definitions: tuple[Definition, ...]
    outputs: tuple[Any, ...]
    constants: Mapping[str, Any]
    counts: Counts
    hints: Mapping[str, int]
    is_ordered: bool
    saved: frozenset[str] = frozenset()


def coordinates(rank: int) -> tuple[Index, ...]:
    """d0, d1, ...: the coordinates of a tensor of `rank` dimensions."""
    return _COORDINATES[:rank] if rank <= len(_COORDINATES) else tuple(Symbol(f"d{i}") for i in range(rank))


_COORDINATES: tuple[Index, ...] = tuple(Symbol(f"d{i}") for i in range(16))


def ranges_of(shape: tuple[Index, ...]) -> dict[str, Index]:
    """The ranges of the coordinates of a tensor."""
    return {f"d{i}": extent for i, extent in enumerate(shape)}


LANES = Int(2)
"""The numbers that a complex one is made of."""


def numbers_of(tensor: Tensor) -> tuple[Index, ...]:
    """The shape of a tensor in real numbers: with the lanes of a complex one."""
    return (*tensor.shape, LANES) if tensor.dtype.is_complex else tensor.shape
