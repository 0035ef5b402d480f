"""Searches in sorted sequences: how many elements of a row stand before a value."""

from __future__ import annotations

import torch

from assay.compiler.ir.loops.index import Index, Int, Symbol
from assay.compiler.ir.loops.kernel import Bind, Expr, Loop, Reduce
from assay.compiler.ir.loops.lowered import Tensor, coordinates
from assay.compiler.ir.loops.rewrite import call, constant, convert, widened
from assay.compiler.ops.registry import Declined, Kind, Operation, Result, element, rule, value_of

MOST_COUNTED = 16
"""A longer row is searched by halves."""
LONGEST = 1 << 16
"""The steps of a search are written out, one for each bit of the length."""


def searched(operation: Operation, row: Tensor, outer: tuple[Index, ...], value: Expr) -> Result:
    """The first place in `row[outer]` whose element is not less than the value, or with `right` the first that is
    greater; NaN is beyond all."""
    extent = row.shape[-1]
    if not isinstance(extent, Int) or extent.value > LONGEST:
        raise Declined("a row of symbolic size, or a long one")
    is_right = operation["right"] or operation.arguments.get("side") == "right"

    def is_before(place: Index) -> Expr:
        """Whether the element at a place stands before the value."""
        found = element(row, (*outer, place), value.dtype)
        return call("logical_not", call("gt" if is_right else "ge", found, value))

    loop = Loop(f"{operation.name}_0", extent)
    if extent.value <= MOST_COUNTED:
        count: Expr = Reduce("sum", (loop,), convert(is_before(Symbol(loop.var)), torch.int64), torch.int64)
    else:
        count = _by_halves(loop, is_before(Symbol(loop.var)), extent.value)
    return (convert(count, operation.output.dtype),)


def _by_halves(loop: Loop, is_before: Expr, length: int) -> Expr:
    """How many elements stand before the value: a step of each size is taken if the last element in it does."""
    count: Expr = constant(0, torch.int64)
    for bit in reversed(range(length.bit_length())):
        further = call("add", count, constant(1 << bit, torch.int64))
        last = call("sub", further, constant(1, torch.int64))
        is_inside = call("le", further, constant(length, torch.int64))
        steps = call("logical_and", is_inside, Bind(loop, last, is_before, torch.bool))
        count = call("where", steps, further, count, dtype=torch.int64)
    return count


@rule(Kind.indexing, "searchsorted.Tensor", "searchsorted.Scalar")
def searchsorted(operation: Operation) -> Result:
    row, value = operation.tensor("sorted_sequence"), operation["self"]
    if operation["sorter"] is not None:
        raise Declined("a row that is sorted by another")
    if operation["right"] and operation["side"] == "left":
        raise Declined("two sides, which eager rejects")
    outer = coordinates(len(row.shape) - 1) if len(row.shape) > 1 else ()
    if outer and not (isinstance(value, Tensor) and value.shape[:-1] == row.shape[:-1]):
        raise Declined("rows that are not those of the values, which eager rejects")
    return searched(operation, row, outer, _value(operation, value, row))


@rule(Kind.indexing, "bucketize.Tensor", "bucketize.Scalar")
def bucketize(operation: Operation) -> Result:
    row = operation.tensor("boundaries")
    if len(row.shape) != 1:
        raise Declined("several rows, which eager rejects")
    return searched(operation, row, (), _value(operation, operation["self"], row))


def _value(operation: Operation, value: object, row: Tensor) -> Expr:
    """What is searched, compared in the dtype of the row. Raises: Declined for a value of another."""
    if (isinstance(value, Tensor) and value.dtype is not row.dtype) or row.dtype is torch.bool:
        raise Declined("another dtype")
    return value_of(value, operation.output.shape, widened(row.dtype))
