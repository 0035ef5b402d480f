"""Scans: `out[d] = op over all that stands before d along one dimension, and d`."""

from __future__ import annotations

import torch

from assay.compiler.ir.loops.index import ONE, ZERO, Index, Symbol
from assay.compiler.ir.loops.kernel import AsValue, Expr, Loop, Scan, ScanOp
from assay.compiler.ir.loops.lowered import Tensor, coordinates
from assay.compiler.ir.loops.rewrite import call, constant, convert, widened
from assay.compiler.ops.indexing.lookup import of_scalars
from assay.compiler.ops.registry import Declined, Kind, Operation, Result, Rule, element, record


class Along:
    """The dimension that a scan runs along: its loop, and the coordinates of what is scanned."""

    __slots__ = ("at", "here", "last", "loop", "tensor")

    def __init__(self, operation: Operation, unique: str = "s") -> None:
        tensor = operation.tensor("self")
        rank = len(tensor.shape)
        dim = operation["dim"] % rank
        own = coordinates(rank)
        self.tensor: Tensor = tensor
        self.loop = Loop(f"{operation.name}_{unique}", tensor.shape[dim])
        self.last: Index = own[dim]
        self.here: Index = ZERO if self.loop.extent is ONE else Symbol(self.loop.var)
        self.at = (*own[:dim], self.here, *own[dim + 1 :])

    def element(self, dtype: torch.dtype) -> Expr:
        return element(self.tensor, self.at, dtype)

    def scan(self, op: ScanOp, body: Expr, last: Index | None = None) -> Expr:
        """The total of `body` up to the element, or up to another; a total begins at 0, so that -0 becomes 0."""
        if self.loop.extent is ONE:
            is_sum = op == "sum" and body.dtype.is_floating_point
            return call("add", constant(0.0, body.dtype), body) if is_sum else body
        return Scan(op, self.loop, self.last if last is None else last, body, body.dtype)


def total_dtype(dtype: torch.dtype) -> torch.dtype:
    """The dtype that eager carries a total along in."""
    return torch.float64 if dtype is torch.float32 else widened(dtype)


def total(op: ScanOp) -> Rule:
    """A rule: the total so far, of elements in the dtype of the result."""

    def lower(operation: Operation) -> Result:
        along, dtype = Along(operation), operation.output.dtype
        if dtype is torch.bool:
            raise Declined("booleans")
        body = convert(along.element(dtype), total_dtype(dtype))
        return (convert(along.scan(op, body), dtype),)

    return lower


record(Kind.scan, of_scalars(total("sum")), "cumsum")
record(Kind.scan, of_scalars(total("prod")), "cumprod")
record(Kind.scan, of_scalars(total("logaddexp")), "logcumsumexp")


def extremum(op: ScanOp, is_new: str) -> Rule:
    """A rule: the extremum so far and its last position; a NaN stays, and the last NaN is where it is."""

    def lower(operation: Operation) -> Result:
        values, positions = Along(operation), Along(operation, "p")
        dtype = widened(values.tensor.dtype)
        if dtype is torch.bool:
            raise Declined("booleans")
        here, body = positions.here, values.element(dtype)
        value, best = positions.element(dtype), values.scan(op, body, here)
        is_best = call(is_new, value, best)
        if dtype.is_floating_point:
            is_best = call("logical_or", is_best, call("isnan", value))
        zero = constant(0, torch.int64)
        place = call("where", is_best, AsValue(here, torch.int64), zero, dtype=torch.int64)
        return convert(values.scan(op, body), values.tensor.dtype), positions.scan("max", place)

    return lower


record(Kind.scan, of_scalars(extremum("max", "ge")), "cummax")
record(Kind.scan, of_scalars(extremum("min", "le")), "cummin")
