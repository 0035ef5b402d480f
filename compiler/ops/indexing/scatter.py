"""Scatters: `out = self; out[..., index[d], ...] (= | += ...) source[d]`, where several d may meet in one element.

Updates that meet are made in the order of the index, as eager's loops make them. Every position is checked as eager
checks it. Along the innermost dimension an update alone takes 1.0 to 1.15 of ATen's time. With the zeros that a
gradient begins with, or with anything computed for it, it takes 0.6 to 0.9.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import torch

from assay.compiler.ir.loops.index import ONE, ZERO, Index, Int, Symbol, product
from assay.compiler.ir.loops.kernel import AsValue, Bind, Expr, Loop, Mode
from assay.compiler.ir.loops.lowered import Tensor, coordinates
from assay.compiler.ir.loops.rewrite import NARROW, call, constant, convert, widened
from assay.compiler.ops.indexing.lookup import (
    bound,
    broadcast_to,
    checked,
    given_indices,
    indexed_places,
    kept_inside,
    places_in,
    position_of,
    scalar_rule,
)
from assay.compiler.ops.registry import (
    Declined,
    Kind,
    Operation,
    Result,
    Rule,
    Scatter,
    element,
    number_of,
    record,
    rule,
)


@dataclass(frozen=True, slots=True)
class Updates:
    """Updates of an operator's result: the extents of the loops `over` them, their value, and how each is written.

    `initial` is what the result is before them: `self`, or what stands here.
    """

    operation: Operation
    over: tuple[Index, ...]
    value: Expr
    mode: Mode
    initial: Expr | Scatter | None = None

    def at(self, place: tuple[Index, ...], found: list[tuple[Loop, Expr]]) -> Result:
        """The updates at a place, in which a loop stands for each position that is data.

        Raises: Declined where there are no updates.
        """
        if ZERO in self.over:
            raise Declined("no updates")
        update = bound(self.operation, self.value, found)
        before = self.initial
        if before is None:
            before = self.operation.value("self", self.operation.output.dtype)
        return (Scatter(before, self.over, place, update, self.mode),)


def scattered(updates: Updates, at: Sequence[Index], positions: Mapping[int, Expr]) -> Result:
    """The updates at coordinates of which those in `positions` are data.

    Raises: Declined where there is nothing to update, or nowhere.
    """
    operation, place = updates.operation, list(at)
    loops = {dim: Loop(f"{operation.name}_{dim}", operation.output.shape[dim]) for dim in positions}
    for dim, loop in loops.items():
        place[dim] = Symbol(loop.var)
    return updates.at(tuple(place), [(loops[dim], position) for dim, position in positions.items()])


def wants_exact_steps(output: Tensor) -> None:
    """Raises: Declined for halves, whose updates eager adds up in float32 and rounds once."""
    if output.dtype in NARROW:
        raise Declined("halves")


def source_of(operation: Operation, names: Sequence[str], at: tuple[Index, ...]) -> Expr:
    """The updates' values: a tensor's elements at the coordinates of the update, or a number."""
    value = next(operation.arguments[name] for name in names if name in operation.arguments)
    if isinstance(value, Tensor):
        return element(value, at if value.shape else (), operation.output.dtype)
    if isinstance(value, bool | int | float):
        return convert(constant(value, operation.output.dtype), operation.output.dtype)
    raise Declined(f"source {value!r}")


# ---- one position for each update ------------------------------------------------------------------------------------


def scatter(mode: Mode) -> Rule:
    """A rule: an index for each element of the source."""

    def lower(operation: Operation) -> Result:
        index, output = operation.tensor("index"), operation.output
        own, dim = coordinates(len(index.shape)), operation["dim"] % len(output.shape)
        if mode in ("write", "accumulate") and is_one_in_each_row(operation, index, dim):
            return (one_in_each_row(operation, index, dim, mode),)
        if mode in ("accumulate", "multiply"):
            wants_exact_steps(output)
        position = checked(position_of(index, own), output.shape[dim], "gather", wraps=False)
        value = source_of(operation, ("src", "value"), own)
        return scattered(Updates(operation, index.shape, value, mode), own, {dim: position})

    return lower


def is_one_in_each_row(operation: Operation, index: Tensor, dim: int) -> bool:
    """Whether each row along a dimension is a number but in one element, as the gradient of a loss's labels is. (An
    index without elements may have another rank.)"""
    if len(index.shape) != len(operation.output.shape):
        return False
    rows = [(a, b) for at, (a, b) in enumerate(zip(index.shape, operation.output.shape, strict=True)) if at != dim]
    return "self" in operation.filled and index.shape[dim] is ONE and all(a is b for a, b in rows)


def one_in_each_row(operation: Operation, index: Tensor, dim: int, mode: Mode) -> Expr:
    """Each element by itself, so that what reads it needs no memory for it: `where(index[row] == i, value, number)`."""
    output = operation.output
    own = list(coordinates(len(output.shape)))
    along, own[dim] = own[dim], ZERO
    extent = output.shape[dim]
    position = checked(position_of(index, tuple(own)), extent, "gather", wraps=False)
    kind = torch.int32 if isinstance(extent, Int) and extent.value < 1 << 31 else torch.int64
    is_it = call("eq", convert(position, kind), AsValue(along, kind))
    before = operation.value("self", output.dtype)
    value = source_of(operation, ("src", "value"), tuple(own))
    if mode == "accumulate":
        wide = widened(output.dtype)
        after = convert(call("add", convert(before, wide), convert(value, wide)), output.dtype)
    else:
        after = value
    return call("where", is_it, after, before, dtype=output.dtype)


scalar_rule("scatter.src", "scatter.value")(scatter("write"))
scalar_rule("scatter_add")(scatter("accumulate"))

REDUCTIONS: dict[str, Mode] = {
    "add": "accumulate",
    "multiply": "multiply",
    "sum": "accumulate",
    "prod": "multiply",
    "amax": "maximum",
    "amin": "minimum",
}


IDENTITIES: dict[Mode, Callable[[torch.dtype], float]] = {
    "accumulate": lambda dtype: 0,
    "multiply": lambda dtype: 1,
    "maximum": lambda dtype: -math.inf if dtype.is_floating_point else _least(dtype),
    "minimum": lambda dtype: math.inf if dtype.is_floating_point else _greatest(dtype),
}
"""What changes nothing that it is joined with."""


def _least(dtype: torch.dtype) -> int:
    return 0 if dtype is torch.bool else torch.iinfo(dtype).min


def _greatest(dtype: torch.dtype) -> int:
    return 1 if dtype is torch.bool else torch.iinfo(dtype).max


def reduction(operation: Operation, lower: Callable[[Mode], Rule]) -> Result:
    """Updates by the operator's `reduce`; without `include_self` of what replaces the elements that are updated.

    A mean needs the counts as a second tensor: it is ATen's.
    """
    mode, dtype = REDUCTIONS.get(operation["reduce"]), operation.output.dtype
    if mode is None:
        raise Declined("a mean")
    updates = lower(mode)(operation)
    if operation.arguments.get("include_self", True):
        return updates
    (scatter,) = updates
    assert isinstance(scatter, Scatter)
    identity = convert(constant(IDENTITIES[mode](dtype), dtype), dtype)
    cleared = replace(scatter, update=_ending_in(scatter.update, identity), mode="write")
    return (replace(scatter, initial=cleared),)


def _ending_in(update: Expr, value: Expr) -> Expr:
    """The bindings that an update begins with, around another value."""
    if not isinstance(update, Bind):
        return value
    return Bind(update.loop, update.position, _ending_in(update.body, value), value.dtype)


@scalar_rule("scatter.reduce", "scatter.value_reduce", "scatter_reduce.two")
def scatter_reduce(operation: Operation) -> Result:
    return reduction(operation, scatter)


# ---- one position for each slice -------------------------------------------------------------------------------------


def along(operation: Operation, source: Tensor, mode: Mode, value: Expr, wraps: bool, failure: str) -> Result:
    """Updates of slices of dimension `dim`, in the shape of `source`."""
    index, output = operation.tensor("index"), operation.output
    if len(source.shape) != len(output.shape):
        raise Declined("a source of another rank")
    own, dim = coordinates(len(output.shape)), operation["dim"] % len(output.shape)
    found = position_of(index, (own[dim],))
    position = checked(found, output.shape[dim], failure, wraps)
    return scattered(Updates(operation, source.shape, value, mode), own, {dim: position})


@scalar_rule("index_add")
def index_add(operation: Operation) -> Result:
    source, dtype = operation.tensor("source"), operation.output.dtype
    own = coordinates(len(source.shape))
    value, alpha = element(source, own, dtype), operation["alpha"]
    if len(own) > 1:
        wants_exact_steps(operation.output)
    if alpha != 1:
        wide = widened(dtype)
        if dtype is torch.bool:
            raise Declined("booleans")
        value = convert(call("mul", convert(value, wide), constant(operation.number("alpha"), wide)), dtype)
    return along(operation, source, "accumulate", value, False, "row" if len(source.shape) == 1 else "gather")


@scalar_rule("index_reduce")
def index_reduce(operation: Operation) -> Result:
    source, dtype = operation.tensor("source"), operation.output.dtype
    value = element(source, coordinates(len(source.shape)), dtype)
    return reduction(operation, lambda mode: lambda each: along(each, source, mode, value, False, "row"))


@scalar_rule("index_copy")
def index_copy(operation: Operation) -> Result:
    source = operation.tensor("source")
    value = element(source, coordinates(len(source.shape)), operation.output.dtype)
    return along(operation, source, "write", value, False, "index")


@scalar_rule("index_fill.int_Scalar", "index_fill.int_Tensor")
def index_fill(operation: Operation) -> Result:
    index, output = operation.tensor("index"), operation.output
    operation.needs_room("value")
    own, dim = coordinates(len(output.shape)), operation["dim"] % len(output.shape)
    over = (*output.shape[:dim], product(index.shape), *output.shape[dim + 1 :])
    found = position_of(index, (own[dim],))
    value = source_of(operation, ("value",), ())
    position = checked(found, output.shape[dim], "index", True)
    return scattered(Updates(operation, over, value, "write"), own, {dim: position})


# ---- tensors of indices, several at a time ---------------------------------------------------------------------------


@rule(Kind.indexing, "index_put", "_unsafe_index_put")
def index_put(operation: Operation) -> Result:
    mode: Mode = "accumulate" if operation["accumulate"] else "write"
    return _put(operation, functools.partial(checked, failure="index", wraps=True), mode)


@rule(Kind.indexing, "_unsafe_masked_index_put_accumulate")
def masked_index_put(operation: Operation) -> Result:
    """Values are added where a mask holds; positions out of range are no error."""
    return _put(operation, kept_inside, "accumulate", operation.tensor("mask"))


def _put(operation: Operation, place: Callable[[Expr, Index], Expr], mode: Mode, mask: Tensor | None = None) -> Result:
    """The values put where the indices say, each taken to its place in a dimension; 0 where a mask does not hold."""
    output, values, indices = operation.output, operation.tensor("values"), given_indices(operation)
    inner = broadcast_shape([tensor.shape for tensor in indices.values()])
    rank = len(output.shape) - len(indices) + len(inner)
    at, own, start = indexed_places(output, indices, rank)
    kept = [extent for dim, extent in enumerate(output.shape) if dim not in indices]
    over = (*kept[:start], *inner, *kept[start:])
    positions = {
        dim: place(position_of(tensor, broadcast_to(tensor, own)), output.shape[dim]) for dim, tensor in indices.items()
    }
    value = element(values, broadcast_to(values, coordinates(rank)), output.dtype)
    if mask is not None:
        holds = element(mask, broadcast_to(mask, coordinates(rank)), torch.bool)
        value = call("where", holds, value, convert(constant(0, output.dtype), output.dtype), dtype=output.dtype)
    return scattered(Updates(operation, over, value, mode), at, positions)


@rule(Kind.indexing, "put")
def put(operation: Operation) -> Result:
    """By the position among all elements, row by row."""
    index, source, output = operation.tensor("index"), operation.tensor("source"), operation.output
    if source.shape != index.shape:
        raise Declined("a source of another shape")
    position = position_of(index, coordinates(len(index.shape)))
    value = element(source, coordinates(len(source.shape)), output.dtype)
    mode: Mode = "accumulate" if operation["accumulate"] else "write"
    count = product(output.shape)
    loop = Loop(f"{operation.name}_0", count)
    found = checked(position, count, "element", True)
    return into_places(Updates(operation, index.shape, value, mode), loop, found)


def into_places(updates: Updates, loop: Loop, position: Expr, outer: tuple[Index, ...] = ()) -> Result:
    """Updates at positions among the elements of the dimensions behind `outer`, row by row."""
    place = (*outer, *places_in(Symbol(loop.var), updates.operation.output.shape[len(outer) :]))
    return updates.at(place, [(loop, position)])


def from_places(count: int, name: str, mode: Mode) -> Rule:
    """A rule: zeros, with each element of tensor `name` where `indices` say that it was found, among the last
    dimensions; places out of range are an error. Gradients that meet are added in the order of the windows."""

    def lower(operation: Operation) -> Result:
        source, index, output = operation.tensor(name), operation.tensor("indices"), operation.output
        own, dtype = coordinates(len(source.shape)), output.dtype
        if mode == "accumulate" and source.stride[-count - 1] is ONE and dtype not in NARROW:
            raise Declined("channels last")  # ATen takes 0.8 of our time
        size = product(output.shape[-count:])
        position = checked(position_of(index, own), size, "gather", False)
        zero = convert(constant(0, dtype), dtype)
        loop, value = Loop(f"{operation.name}_0", size), element(source, own, dtype)
        return into_places(Updates(operation, source.shape, value, mode, zero), loop, position, own[:-count])

    return lower


for _count in (2, 3):
    record(Kind.indexing, from_places(_count, "self", "write"), f"max_unpool{_count}d")
    _backward = from_places(_count, "grad_output", "accumulate")
    record(Kind.indexing, _backward, f"max_pool{_count}d_with_indices_backward", f"adaptive_max_pool{_count}d_backward")
    record(Kind.indexing, _backward, f"fractional_max_pool{_count}d_backward")
del _count, _backward


def broadcast_shape(shapes: Sequence[tuple[Index, ...]]) -> tuple[Index, ...]:
    """The common shape of tensors that broadcast."""
    rank = max(len(shape) for shape in shapes)
    padded = [(*(ONE,) * (rank - len(shape)), *shape) for shape in shapes]
    return tuple(
        next((extent for extent in extents if extent is not ONE), ONE) for extents in zip(*padded, strict=True)
    )


# ---- rows of a table -------------------------------------------------------------------------------------------------


@rule(Kind.indexing, "embedding_dense_backward")
def embedding_backward(operation: Operation) -> Result:
    """Rows that are padding, and positions out of range, add nothing; eager checks none."""
    gradient, index, output = operation.tensor("grad_output"), operation.tensor("indices"), operation.output
    if operation["scale_grad_by_freq"]:
        raise Declined("gradients by frequency")
    own = coordinates(len(gradient.shape))
    position, dtype = position_of(index, own[:-1]), output.dtype
    rows, zero = number_of(output.shape[0], torch.int64), constant(0, torch.int64)
    counts = call("logical_and", call("ge", position, zero), call("lt", position, rows))
    padding = operation["padding_idx"]
    if not isinstance(padding, int):
        raise Declined("symbolic padding")
    if padding >= 0:
        counts = call("logical_and", counts, call("ne", position, constant(padding, torch.int64)))
    nothing = convert(constant(0, dtype), dtype)
    value = call("where", counts, element(gradient, own, dtype), nothing, dtype=dtype)
    updates = Updates(operation, gradient.shape, value, "accumulate", nothing)
    return scattered(updates, (ZERO, own[-1]), {0: position})
