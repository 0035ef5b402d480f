"""Indexing: elements that come from computed places, of one tensor or another."""

from __future__ import annotations

from typing import Any

import torch
from torch.fx.experimental.symbolic_shapes import statically_known_true
from torch.utils import _pytree as pytree

from assay.compiler.ir.loops.index import ONE, ZERO, Index, Int, as_index, maximum, minimum
from assay.compiler.ir.loops.kernel import AsValue, Expr
from assay.compiler.ir.loops.lowered import Tensor, coordinates
from assay.compiler.ir.loops.rewrite import call, constant, convert
from assay.compiler.machine import number
from assay.compiler.ops.indexing.views import position_of, start_of
from assay.compiler.ops.registry import Declined, Kind, Operation, Result, element, number_of, record, rule


def compared(op: str, a: Index, b: Index) -> Expr:
    return call(op, AsValue(a, torch.int64), number_of(b, torch.int64))


def clamped_place(index: Index, extent: Index) -> Index:
    """The index, kept in range for the elements where it is not chosen."""
    return maximum(minimum(index, extent - 1), ZERO)


def is_empty(tensor: Tensor) -> bool:
    return any(extent is ZERO for extent in tensor.shape)


def needs_elements(traced: Any) -> None:
    """Where an element is not chosen, the nearest place in range is read. A tensor without elements has none.

    Raises: Declined for a tensor of changing sizes that may have no elements.
    """
    sizes = [size for fake in pytree.tree_leaves(traced) if isinstance(fake, torch.Tensor) for size in fake.shape]
    if any(isinstance(size, torch.SymInt) and not statically_known_true(size > 0) for size in sizes):
        raise Declined("a part that may be empty")


@rule(Kind.indexing, "cat")
def cat(operation: Operation) -> Result:
    output = operation.output
    needs_elements(operation.fakes[0])
    pieces = [piece for piece in operation["tensors"] if not is_empty(piece)]
    has_all_dims = all(len(piece.shape) == len(output.shape) for piece in pieces)
    if not 0 < len(pieces) <= number("concatenated_tensors") or not has_all_dims:
        raise Declined(f"{len(pieces)} pieces")
    dim = operation["dim"] % len(output.shape)
    if len(pieces) > 1 and output.stride[dim] is ONE and not all(isinstance(piece.shape[dim], Int) for piece in pieces):
        raise Declined("rows of symbolic parts")  # chosen at each element they take 30 times as long as ATen's copies
    return (_chosen(pieces, dim, ZERO, output),)


def _chosen(pieces: list[Tensor], dim: int, start: Index, output: Tensor) -> Expr:
    """The element of the piece that the coordinate falls in."""
    here, rest = pieces[0], pieces[1:]
    own = coordinates(len(output.shape))
    extent = here.shape[dim]
    at = (*own[:dim], clamped_place(own[dim] - start, extent), *own[dim + 1 :])
    value = element(here, at, output.dtype)
    if not rest:
        return value
    inside = compared("lt", own[dim], start + extent)
    return call("where", inside, value, _chosen(rest, dim, start + extent, output), dtype=output.dtype)


@rule(Kind.indexing, "stack")
def stack(operation: Operation) -> Result:
    output, pieces = operation.output, operation["tensors"]
    if not 0 < len(pieces) <= number("concatenated_tensors"):
        raise Declined(f"{len(pieces)} pieces")
    own, dim = coordinates(len(output.shape)), operation["dim"] % len(output.shape)
    values = [element(piece, (*own[:dim], *own[dim + 1 :]), output.dtype) for piece in pieces]
    chosen = values[-1]
    for place, value in reversed(list(enumerate(values[:-1]))):
        is_here = compared("lt", own[dim], Int(place + 1))
        chosen = call("where", is_here, value, chosen, dtype=output.dtype)
    return (chosen,)


@rule(Kind.indexing, "constant_pad_nd")
def constant_pad(operation: Operation) -> Result:
    source, output, pad = operation.tensor("self"), operation.output, operation["pad"]
    filling = convert(constant(operation.number("value"), output.dtype), output.dtype)
    if is_empty(source):
        return (filling,)
    needs_elements(operation.fakes[0])
    own = coordinates(len(output.shape))
    at, inside = list(own), list[Expr]()
    for pair in range(len(pad) // 2):
        dim = len(own) - 1 - pair
        _check_cropping(operation, dim, (2 * pair, 2 * pair + 1))
        before, after = as_index(pad[2 * pair]), as_index(pad[2 * pair + 1])
        place = own[dim] - before
        at[dim] = clamped_place(place, source.shape[dim])
        inside += [] if before is ZERO else [compared("ge", own[dim], before)]
        inside += [] if after is ZERO else [compared("lt", place, source.shape[dim])]
    return (where_all(inside, element(source, tuple(at), output.dtype), filling),)


def _check_cropping(operation: Operation, dim: int, sides: tuple[int, int]) -> None:
    """Raises: Declined where more may be cropped at one side of a dimension than there is, which eager refuses."""
    source, pads = operation.fakes[:2]
    if not all(statically_known_true(pads[side] >= -source.shape[dim]) for side in sides):
        raise Declined("cropped by more than its size")


def where_all(conditions: list[Expr], value: Expr, otherwise: Expr) -> Expr:
    """`value` where every condition holds."""
    if not conditions:
        return value
    condition = conditions[0]
    for other in conditions[1:]:
        condition = call("logical_and", condition, other)
    return call("where", condition, value, otherwise, dtype=value.dtype)


@rule(Kind.indexing, "slice_scatter")
def slice_scatter(operation: Operation) -> Result:
    needs_elements(operation.fakes[1])
    return _into_slice(operation, operation.tensor("src"), operation.value("self", operation.output.dtype))


@rule(Kind.indexing, "slice_backward")
def slice_backward(operation: Operation) -> Result:
    needs_elements(operation.fakes[0])
    return _into_slice(operation, operation.tensor("grad_output"), _zero(operation))


def _zero(operation: Operation) -> Expr:
    return convert(constant(0, operation.output.dtype), operation.output.dtype)


def _into_slice(operation: Operation, source: Tensor, old: Expr) -> Result:
    """`old` with `source` in the place of a slice."""
    shape = operation.output.shape
    dim, step = operation["dim"] % len(shape), as_index(operation["step"])
    if is_empty(source):
        return (old,)
    own = coordinates(len(shape))
    start, extent = start_of(operation, shape[dim]), source.shape[dim]
    place = own[dim] - start
    at = (*own[:dim], clamped_place(place // step, extent), *own[dim + 1 :])
    conditions = [] if start is ZERO else [compared("ge", own[dim], start)]
    conditions += [] if step is ONE else [compared("eq", place % step, ZERO)]
    end = start + (extent - 1) * step + 1
    conditions += [] if end is shape[dim] else [compared("lt", own[dim], end)]
    return (where_all(conditions, element(source, at, operation.output.dtype), old),)


@rule(Kind.indexing, "select_scatter")
def select_scatter(operation: Operation) -> Result:
    return _into_place(operation, operation.tensor("src"), operation.value("self", operation.output.dtype))


@rule(Kind.indexing, "select_backward")
def select_backward(operation: Operation) -> Result:
    return _into_place(operation, operation.tensor("grad_output"), _zero(operation))


def _into_place(operation: Operation, source: Tensor, old: Expr) -> Result:
    """`old` with `source` at one index of a dimension."""
    shape = operation.output.shape
    dim, own = operation["dim"] % len(shape), coordinates(len(shape))
    place = position_of(operation, shape[dim])
    new = element(source, (*own[:dim], *own[dim + 1 :]), operation.output.dtype)
    return (where_all([compared("eq", own[dim], place)], new, old),)


@rule(Kind.indexing, "flip")
def flip(operation: Operation) -> Result:
    source = operation.tensor("self")
    dims = {dim % len(source.shape) for dim in operation["dims"]}
    own = coordinates(len(source.shape))
    at = tuple(source.shape[i] - 1 - d if i in dims else d for i, d in enumerate(own))
    return (element(source, at, operation.output.dtype),)


@rule(Kind.indexing, "rot90")
def rot90(operation: Operation) -> Result:
    """Turned by quarters, from the first towards the second dimension."""
    source, quarters = operation.tensor("self"), operation["k"] % 4
    first, second = (dim % len(source.shape) for dim in operation["dims"])
    at = list(coordinates(len(source.shape)))
    row, column = at[first], at[second]
    last_row, last_column = source.shape[first] - 1, source.shape[second] - 1
    at[first], at[second] = [
        (row, column),
        (column, last_column - row),
        (last_row - row, last_column - column),
        (last_row - column, row),
    ][quarters]
    return (element(source, tuple(at), operation.output.dtype),)


@rule(Kind.indexing, "roll")
def roll(operation: Operation) -> Result:
    source = operation.tensor("self")
    if not operation["dims"] or len(set(operation["dims"])) != len(operation["dims"]):
        raise Declined("roll of the flattened tensor")
    if is_empty(source):
        raise Declined("an empty tensor")
    at = list(coordinates(len(source.shape)))
    for shift, dim in zip(operation["shifts"], operation["dims"], strict=True):
        extent = source.shape[dim % len(at)]
        at[dim % len(at)] = (at[dim % len(at)] + extent - as_index(shift) % extent) % extent
    return (element(source, tuple(at), operation.output.dtype),)


@rule(Kind.indexing, "repeat")
def repeat(operation: Operation) -> Result:
    source, own = operation.tensor("self"), coordinates(len(operation.output.shape))
    own = own[len(own) - len(source.shape) :]
    at = tuple(d % extent for d, extent in zip(own, source.shape, strict=True))
    return (element(source, at, operation.output.dtype),)


def _triangle(operation: Operation, op: str) -> Result:
    output = operation.output
    row, column = coordinates(len(output.shape))[-2:]
    keeps = compared(op, column - row, as_index(operation["diagonal"]))
    value = operation.value("self", output.dtype)
    return (call("where", keeps, value, convert(constant(0, output.dtype), output.dtype), dtype=output.dtype),)


@rule(Kind.indexing, "tril")
def tril(operation: Operation) -> Result:
    return _triangle(operation, "le")


@rule(Kind.indexing, "triu")
def triu(operation: Operation) -> Result:
    return _triangle(operation, "ge")


record(
    Kind.indexing,
    None,
    *(
        "masked_scatter masked_select nonzero _unique2 bincount one_hot upsample_bicubic2d repeat_interleave.Tensor"
    ).split(),
)
