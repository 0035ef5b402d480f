"""Views: `out[d] = base[at(d)]`, with no elements of their own."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from assay.compiler.ir.loops.index import (
    ONE,
    ZERO,
    Index,
    Int,
    Symbol,
    as_index,
    floordiv,
    maximum,
    minimum,
    mod,
    product,
)
from assay.compiler.ir.loops.kernel import CallAten, Ref
from assay.compiler.ir.loops.lowered import Tensor, coordinates, ranges_of
from assay.compiler.ops.registry import Declined, Kind, Operation, Result, View, record, rule

Place = Callable[[Operation, Tensor], tuple[Index, ...]]


def view(*targets: str) -> Callable[[Place], Place]:
    """Declares `function(operation, base)`, the coordinates in the base, as the rule of its targets."""

    def declare(function: Place) -> Place:
        def lower(operation: Operation) -> Result:
            base = operation.tensor("self")
            return (View(base, function(operation, base)),)

        record(Kind.view, lower, *targets)
        return function

    return declare


def own(operation: Operation) -> tuple[Index, ...]:
    """The coordinates of the output."""
    return coordinates(len(operation.output.shape))


@view("alias", "detach", "lift_fresh", "lift")
def same(operation: Operation, base: Tensor) -> tuple[Index, ...]:
    return own(operation)


@view("permute")
def permute(operation: Operation, base: Tensor) -> tuple[Index, ...]:
    at: list[Index] = [ZERO] * len(base.shape)
    for position, dim in enumerate(operation["dims"]):
        at[dim] = Symbol(f"d{position}")
    return tuple(at)


@view("t", "numpy_T")
def reverse(operation: Operation, base: Tensor) -> tuple[Index, ...]:
    return own(operation)[::-1]


@view("transpose.int")
def transpose(operation: Operation, base: Tensor) -> tuple[Index, ...]:
    at = list(own(operation))
    if at:
        a, b = operation["dim0"], operation["dim1"]
        at[a], at[b] = at[b], at[a]
    return tuple(at)


@view("unsqueeze")
def unsqueeze(operation: Operation, base: Tensor) -> tuple[Index, ...]:
    at = list(own(operation))
    del at[operation["dim"] % len(at)]
    return tuple(at)


@view("squeeze.default", "squeeze.dim", "squeeze.dims")
def squeeze(operation: Operation, base: Tensor) -> tuple[Index, ...]:
    rank = len(base.shape)
    given = operation.arguments.get("dim", range(rank))
    dims = {dim % max(rank, 1) for dim in (given if isinstance(given, list | tuple | range) else (given,))}
    gone = {dim for dim in dims if dim < rank and base.shape[dim] is ONE}
    if rank - len(gone) != len(operation.output.shape):
        raise Declined(f"which of {base.shape} are 1")
    left = iter(own(operation))
    return tuple(ZERO if dim in gone else next(left) for dim in range(rank))


@view("expand")
def expand(operation: Operation, base: Tensor) -> tuple[Index, ...]:
    at = own(operation)[len(operation.output.shape) - len(base.shape) :]
    return tuple(ZERO if extent is ONE else d for extent, d in zip(base.shape, at, strict=True))


@view("view", "reshape", "_unsafe_view", "_reshape_alias", "view_copy", "flatten.using_ints", "unflatten.int")
def reshape(operation: Operation, base: Tensor) -> tuple[Index, ...]:
    return reshaped(operation.output.shape, base.shape)


def reshaped(shape: tuple[Index, ...], base: tuple[Index, ...]) -> tuple[Index, ...]:
    """The coordinates in `base` of the element at the same row-major position of `shape`.

    Dimensions are matched in the smallest groups of equal size, so that what a reshape leaves alone stays as it is.
    """
    if any(extent is ZERO for extent in base):  # there is no such element, and nothing to divide by
        return (ZERO,) * len(base)
    ranges = ranges_of(shape)
    at: list[Index] = []
    for outer, inner in _groups(shape, base):
        linear = as_index(0)
        for dim in outer:
            linear = linear * shape[dim] + Symbol(f"d{dim}") if shape[dim] is not ONE else linear
        for dim in inner:
            weight_after = product(tuple(base[later] for later in inner if later > dim))
            index = floordiv(linear, weight_after, ranges)
            at.append(index if dim == inner[0] else mod(index, base[dim], ranges))
    return tuple(at)


def _groups(a: Sequence[Index], b: Sequence[Index]) -> list[tuple[list[int], list[int]]]:
    """Runs of dimensions of `a` and `b` with equal products, the smallest that static sizes allow to find."""
    groups: list[tuple[list[int], list[int]]] = []
    i = j = 0
    while i < len(a) or j < len(b):
        left, right = [i] if i < len(a) else [], [j] if j < len(b) else []
        i, j = i + len(left), j + len(right)
        size_a, size_b = (product(tuple(s[d] for d in ds)) for s, ds in ((a, left), (b, right)))
        while size_a is not size_b and (i < len(a) or j < len(b)):
            grow_a = j >= len(b) or (i < len(a) and _is_smaller(size_a, size_b))
            if grow_a:
                left.append(i)
                size_a, i = size_a * a[i], i + 1
            else:
                right.append(j)
                size_b, j = size_b * b[j], j + 1
        groups.append((left, right))
    return groups


def _is_smaller(a: Index, b: Index) -> bool:
    if isinstance(a, Int) and isinstance(b, Int):
        return a.value < b.value
    return isinstance(a, Int)


def start_of(operation: Operation, extent: Index) -> Index:
    """The first position of a slice: negative counts from the end, and it is clamped to the dimension."""
    if operation["start"] is None:
        return ZERO
    start = as_index(operation["start"])
    if operation.is_negative("start"):
        return maximum(extent + start, ZERO)
    return minimum(start, extent) if isinstance(start, Int) and isinstance(extent, Int) else start


def position_of(operation: Operation, extent: Index) -> Index:
    """The argument `index`, a position in a dimension, counted from its start."""
    index = as_index(operation["index"])
    return extent + index if operation.is_negative("index") else index


@view("slice.Tensor")
def slice_(operation: Operation, base: Tensor) -> tuple[Index, ...]:
    at = list(own(operation))
    dim = operation["dim"] % len(at)
    at[dim] = at[dim] * as_index(operation["step"]) + start_of(operation, base.shape[dim])
    return tuple(at)


@view("select.int")
def select(operation: Operation, base: Tensor) -> tuple[Index, ...]:
    at = list(own(operation))
    dim = operation["dim"] % len(base.shape)
    return (*at[:dim], position_of(operation, base.shape[dim]), *at[dim:])


@view("diagonal")
def diagonal(operation: Operation, base: Tensor) -> tuple[Index, ...]:
    rank, offset = len(base.shape), operation["offset"]
    at, along = list(own(operation)), Symbol(f"d{rank - 2}")
    places = {operation["dim1"] % rank: along + max(-offset, 0), operation["dim2"] % rank: along + max(offset, 0)}
    left = iter(at[:-1])
    return tuple(places[dim] if dim in places else next(left) for dim in range(rank))


# ---- views that come in lists ----------------------------------------------------------------------------------------


@rule(Kind.view, "split.Tensor", "split_with_sizes", "split.sizes", "chunk", "tensor_split.sections")
def split(operation: Operation) -> Result:
    """Each piece follows the one before; what is left out has a size from the traced results."""
    base = operation.tensor("self")
    dim = operation["dim"] % len(base.shape)
    start: Index = ZERO
    pieces: list[View | None] = []
    for piece in operation.outputs:
        if piece is None:
            raise Declined("a piece of unknown size")
        at = list(coordinates(len(base.shape)))
        at[dim] = at[dim] + start
        end = start + piece.shape[dim]
        call = CallAten(piece.name, torch.ops.aten.slice.Tensor, (Ref(base.name), dim, start, end, 1), {})
        pieces.append(View(base, tuple(at), call))
        start = end
    return tuple(pieces)


@rule(Kind.view, "unbind.int")
def unbind(operation: Operation) -> Result:
    base = operation.tensor("self")
    dim = operation["dim"] % len(base.shape)
    pieces: list[View | None] = []
    for position, piece in enumerate(operation.outputs):
        if piece is None:
            raise Declined("a piece of unknown size")
        at = coordinates(len(base.shape) - 1)
        call = CallAten(piece.name, torch.ops.aten.select.int, (Ref(base.name), dim, position), {})
        pieces.append(View(base, (*at[:dim], Int(position), *at[dim:]), call))
    return tuple(pieces)


UNMAPPED = (
    "as_strided view.dtype view_as_real view_as_complex real imag unfold squeeze_ _conj _neg_view expand_as view_as"
)
record(Kind.view, None, *UNMAPPED.split())
