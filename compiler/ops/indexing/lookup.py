"""Lookups: elements at positions that are data. `out[d] = self[..., index[d], ...]`.

Every position is checked as eager checks it; where the check fails, nothing is read that is out of range.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch.utils import _pytree as pytree

from assay.compiler.ir.loops.index import ONE, ZERO, Index, Symbol, product
from assay.compiler.ir.loops.kernel import Bind, Check, Element, Expr, Loop
from assay.compiler.ir.loops.lowered import Tensor, coordinates
from assay.compiler.ir.loops.rewrite import Expansion, Substitution, call, constant, convert
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

INDICES = (torch.int64, torch.int32, torch.int16, torch.int8)


def checked(position: Expr, extent: Index, failure: str, wraps: bool) -> Expr:
    """A position in a dimension, negative ones counting from its end if it `wraps`; any other that is out of range
    fails."""
    size = number_of(extent, torch.int64)
    zero = constant(0, torch.int64)
    if wraps:
        negative = call("lt", position, zero)
        position = call("where", negative, call("add", position, size), position, dtype=torch.int64)
    inside = call("logical_and", call("ge", position, zero), call("lt", position, size))
    return Check(position, inside, failure, torch.int64)


def looked_up(operation: Operation, tensor: Tensor, at: tuple[Index, ...], positions: Mapping[int, Expr]) -> Expr:
    """`tensor[at]` with the coordinates of some dimensions given by the data at `positions`.

    Raises: Declined where a dimension that is looked up in is known to be empty, or the result is.
    """
    place = list(at)
    loops = {dim: Loop(f"{operation.name}_{dim}", tensor.shape[dim]) for dim in positions}
    for dim, loop in loops.items():
        place[dim] = Symbol(loop.var)
    body = element(tensor, tuple(place), tensor.dtype)
    return bound(operation, body, [(loops[dim], position) for dim, position in positions.items()])


def bound(operation: Operation, body: Expr, positions: list[tuple[Loop, Expr]]) -> Expr:
    """The body with the variable of each loop at its position. Raises: Declined as `looked_up`."""
    if ZERO in operation.output.shape:
        raise Declined("nothing to look up")
    for loop, position in reversed(positions):
        if loop.extent is ZERO:
            raise Declined("an empty dimension")
        body = Bind(loop, position, body, body.dtype)
    return body


def position_of(tensor: Tensor, at: tuple[Index, ...]) -> Expr:
    """An element of a tensor of indices. Raises: Declined for other tensors: masks, and bytes that stand for them."""
    if tensor.dtype not in INDICES:
        raise Declined(f"indices of {tensor.dtype}")
    return element(tensor, at, torch.int64)


# ---- scalars, which these operators take for tensors of one element --------------------------------------------------


def of_scalars(rule: Rule) -> Rule:
    """A rule for tensors of at least one dimension as one for scalars too."""

    def lower(operation: Operation) -> Result:
        given = (*pytree.tree_leaves(operation.arguments), *operation.outputs)
        scalars = {tensor.name for tensor in given if isinstance(tensor, Tensor) and not tensor.shape}
        if not scalars:
            return rule(operation)
        lifted = replace(
            operation,
            arguments=pytree.tree_map_only(Tensor, _with_dimension, dict(operation.arguments)),
            outputs=tuple(output and _with_dimension(output) for output in operation.outputs),
        )
        results = zip(rule(lifted), operation.outputs, strict=True)
        return tuple(None if output is None else _of_scalars(each, scalars, output) for each, output in results)

    return lower


def _with_dimension(tensor: Tensor) -> Tensor:
    return tensor if tensor.shape else replace(tensor, shape=(ONE,), stride=(ONE,))


def _of_scalars(result: Any, scalars: set[str], output: Tensor) -> Any:
    """A result without the dimension that scalars were given."""

    def lookup(element: Element) -> tuple[Expr, bool] | None:
        return (Element(element.tensor, (), element.dtype), True) if element.tensor in scalars else None

    drop, at_first = Expansion(lookup), Substitution({"d0": ZERO}, {})
    if isinstance(result, Scatter):
        initial = _of_scalars(result.initial, scalars, output)
        return replace(result, initial=initial, at=result.at if output.shape else (), update=drop(result.update))
    return drop(result) if output.shape else at_first(drop(result))


def scalar_rule(*targets: str) -> Callable[[Rule], Rule]:
    """Declares a function over tensors of at least one dimension as the rule of indexing operators."""

    def declare(function: Rule) -> Rule:
        record(Kind.indexing, of_scalars(function), *targets)
        return function

    return declare


# ---- one position for each element -----------------------------------------------------------------------------------


@scalar_rule("gather")
def gather(operation: Operation) -> Result:
    source, index = operation.tensor("self"), operation.tensor("index")
    own = coordinates(len(index.shape))
    dim = operation["dim"] % len(source.shape)
    position = checked(position_of(index, own), source.shape[dim], "gather", wraps=False)
    return (looked_up(operation, source, own, {dim: position}),)


@scalar_rule("index_select")
def index_select(operation: Operation) -> Result:
    """Columns of a contiguous tensor are left to ATen, whose own code for them takes 0.8 of our time; so are rows of
    nothing, which it looks for all the same."""
    source, index = operation.tensor("self"), operation.tensor("index")
    if ZERO in source.shape:
        raise Declined("an empty tensor")
    own = coordinates(len(source.shape))
    dim = operation["dim"] % len(own)
    if dim == 1 and _is_contiguous(source):
        raise Declined("columns")
    position = checked(position_of(index, (own[dim],)), source.shape[dim], "column" if dim == 1 else "row", wraps=False)
    return (looked_up(operation, source, own, {dim: position}),)


def _is_contiguous(tensor: Tensor) -> bool:
    return all(stride is product(tensor.shape[dim + 1 :]) for dim, stride in enumerate(tensor.stride))


@rule(Kind.indexing, "embedding")
def embedding(operation: Operation) -> Result:
    weight, index = operation.tensor("weight"), operation.tensor("indices")
    if ZERO in weight.shape:
        raise Declined("an empty tensor")
    own = coordinates(len(operation.output.shape))
    position = checked(position_of(index, own[:-1]), weight.shape[0], "row", wraps=False)
    return (looked_up(operation, weight, (ZERO, own[-1]), {0: position}),)


@rule(Kind.indexing, "take")
def take(operation: Operation) -> Result:
    """By the position among all elements, row by row."""
    source, index = operation.tensor("self"), operation.tensor("index")
    count = product(source.shape)
    if count is ZERO:
        raise Declined("an empty tensor")
    position = checked(position_of(index, coordinates(len(index.shape))), count, "element", wraps=True)
    loop = Loop(f"{operation.name}_0", count)
    value = element(source, places_in(Symbol(loop.var), source.shape), source.dtype)
    return (bound(operation, value, [(loop, position)]),)


def places_in(position: Index, shape: tuple[Index, ...]) -> tuple[Index, ...]:
    """The coordinates of the element at a position among all of a shape, row by row."""
    behind = [position // product(shape[dim + 1 :]) for dim in range(len(shape))]
    return tuple(place % shape[dim] if dim else place for dim, place in enumerate(behind))


# ---- tensors of indices, several at a time ---------------------------------------------------------------------------


@rule(Kind.indexing, "index.Tensor", "_unsafe_index.Tensor")
def index(operation: Operation) -> Result:
    """`self[i, :, j]`: the dimensions of the indices, broadcast together, stand where the first index does if the
    indexed dimensions are neighbours, else in front."""
    return (_indexed(operation, functools.partial(checked, failure="index", wraps=True)),)


def _indexed(operation: Operation, place: Callable[[Expr, Index], Expr]) -> Expr:
    """`self` at its indices, each taken to its place in a dimension."""
    source, indices = operation.tensor("self"), given_indices(operation)
    at, inner, _ = indexed_places(source, indices, len(operation.output.shape))
    positions = {
        dim: place(position_of(tensor, broadcast_to(tensor, inner)), source.shape[dim])
        for dim, tensor in indices.items()
    }
    return looked_up(operation, source, at, positions)


def given_indices(operation: Operation) -> dict[int, Tensor]:
    """The tensors of indices by dimension. Raises: Declined for others, as masks, which may have several dimensions."""
    indices = {dim: tensor for dim, tensor in enumerate(operation["indices"]) if tensor is not None}
    if not indices or not all(isinstance(tensor, Tensor) for tensor in indices.values()):
        raise Declined("an index that is no tensor")
    if any(tensor.dtype not in INDICES for tensor in indices.values()):
        raise Declined("a mask")
    return indices


def kept_inside(position: Expr, extent: Index) -> Expr:
    """A position taken to the nearest in a dimension; negative ones count from its end."""
    size, zero = number_of(extent, torch.int64), constant(0, torch.int64)
    clamped = call("minimum", call("maximum", position, call("neg", size)), call("sub", size, constant(1, torch.int64)))
    return call("where", call("lt", clamped, zero), call("add", clamped, size), clamped, dtype=torch.int64)


@rule(Kind.indexing, "_unsafe_masked_index")
def masked_index(operation: Operation) -> Result:
    """`self[indices]` where a mask holds, else a number; positions out of range are no error."""
    value, dtype = _indexed(operation, kept_inside), operation.output.dtype
    fill = convert(constant(operation.number("fill"), dtype), dtype)
    return (call("where", operation.value("mask", torch.bool), value, fill, dtype=dtype),)


def indexed_places(
    source: Tensor, indices: Mapping[int, Tensor], rank: int
) -> tuple[tuple[Index, ...], tuple[Index, ...], int]:
    """The coordinates of the source, those of indexed dimensions still open; the coordinates of the indices, broadcast;
    and where these begin among `rank` coordinates."""
    own, dims = coordinates(rank), sorted(indices)
    width = max(len(tensor.shape) for tensor in indices.values())
    are_neighbours = dims == list(range(dims[0], dims[-1] + 1))
    start = dims[0] if are_neighbours else 0
    rest = iter((*own[:start], *own[start + width :]))
    at = tuple(ZERO if dim in indices else next(rest) for dim in range(len(source.shape)))
    return at, own[start : start + width], start


def broadcast_to(tensor: Tensor, at: tuple[Index, ...]) -> tuple[Index, ...]:
    """The coordinates of a tensor that is broadcast to those at `at`."""
    own = at[len(at) - len(tensor.shape) :]
    return tuple(ZERO if extent is ONE else place for extent, place in zip(tensor.shape, own, strict=True))
