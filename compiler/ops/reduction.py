"""Reductions: `out[d] = op over the reduced dimensions of body`."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from compiler.ir.index import Index, Int, Symbol, maximum, product
from compiler.ir.loops import Expr, Loop, Reduce, ReduceOp
from compiler.ir.lowered import Tensor, coordinates
from compiler.ir.rewrite import call, constant, convert, widened
from compiler.ops.registry import Declined, Kind, Operation, Result, element, number_of, record, rule


class Axes:
    """The loops of one reduction: which dimensions it reduces, and where the others lie in the output."""

    __slots__ = ("at", "loops", "tensor")

    def __init__(self, tensor: Tensor, dims: tuple[int, ...], keep: bool, unique: str) -> None:
        rank = len(tensor.shape)
        outer = iter(coordinates(rank))
        at: list[Index] = []
        loops = []
        for dim, extent in enumerate(tensor.shape):
            if dim in dims:
                loops.append(Loop(f"{unique}_{dim}", extent))
                at.append(Symbol(loops[-1].var))
                if keep:
                    next(outer)
            else:
                at.append(next(outer))
        self.tensor, self.at, self.loops = tensor, tuple(at), tuple(loops)

    @property
    def count(self) -> Index:
        """The number of elements that one result is made of."""
        return product(tuple(loop.extent for loop in self.loops))

    def element(self, dtype: torch.dtype) -> Expr:
        return element(self.tensor, self.at, dtype)

    def reduce(self, op: ReduceOp, body: Expr, dtype: torch.dtype | None = None) -> Expr:
        return Reduce(op, self.loops, body, dtype or body.dtype)


def dims_of(value: Any, rank: int) -> tuple[int, ...]:
    """The dimensions that an argument names; all of them for None and for an empty list."""
    if value is None or value == [] or value == ():
        return tuple(range(rank))
    given = value if isinstance(value, list | tuple) else (value,)
    return tuple(dim % rank if rank else 0 for dim in given)


def axes(operation: Operation, unique: str = "r") -> Axes:
    """The loops of a reduction operator, by its `dim` and `keepdim` arguments."""
    tensor = operation.tensor("self")
    dims = dims_of(operation.arguments.get("dim"), len(tensor.shape))
    return Axes(tensor, dims, bool(operation.arguments.get("keepdim")), f"{operation.name}_{unique}")


def divided(value: Expr, count: Index) -> Expr:
    """`value / count`."""
    return call("div", value, number_of(count, value.dtype))


def simple(op: ReduceOp) -> Callable[[Operation], Result]:
    """A rule: `op` over elements in the dtype that the result is computed in."""

    def lower(operation: Operation) -> Result:
        loops, output = axes(operation), operation.output
        return (convert(loops.reduce(op, loops.element(widened(output.dtype))), output.dtype),)

    return lower


def extremum(op: ReduceOp) -> Callable[[Operation], Result]:
    """A rule: max or min, for booleans any or all."""
    on_bool: ReduceOp = "any" if op == "max" else "all"

    def lower(operation: Operation) -> Result:
        loops, output = axes(operation), operation.output
        chosen = on_bool if output.dtype is torch.bool else op
        return (convert(loops.reduce(chosen, loops.element(widened(output.dtype))), output.dtype),)

    return lower


record(Kind.reduction, simple("sum"), "sum.default", "sum.dim_IntList")
record(Kind.reduction, simple("prod"), "prod.default", "prod.dim_int")
record(Kind.reduction, extremum("max"), "amax", "max.default")
record(Kind.reduction, extremum("min"), "amin", "min.default")


@rule(Kind.reduction, "mean.default", "mean.dim")
def mean(operation: Operation) -> Result:
    loops, output = axes(operation), operation.output
    total = loops.reduce("sum", loops.element(widened(output.dtype)))
    return (convert(divided(total, loops.count), output.dtype),)


def truth(op: ReduceOp) -> Callable[[Operation], Result]:
    """A rule: any or all."""

    def lower(operation: Operation) -> Result:
        if operation.output.dtype is not torch.bool:
            raise Declined("uint8 truth")
        loops = axes(operation)
        return (loops.reduce(op, loops.element(torch.bool)),)

    return lower


record(Kind.reduction, truth("any"), "any.default", "any.dim", "any.dims")
record(Kind.reduction, truth("all"), "all.default", "all.dim", "all.dims")


def position(op: ReduceOp) -> Callable[[Operation], Result]:
    """A rule: the first position of the extremum."""

    def lower(operation: Operation) -> Result:
        loops = axes(operation)
        if loops.tensor.dtype is torch.bool:
            raise Declined("position in booleans")
        return (loops.reduce(op, loops.element(widened(loops.tensor.dtype)), torch.int64),)

    return lower


record(Kind.reduction, position("argmax"), "argmax")
record(Kind.reduction, position("argmin"), "argmin")


def with_position(op: ReduceOp, where: ReduceOp) -> Callable[[Operation], Result]:
    """A rule: the extremum along one dimension, and its first position."""

    def lower(operation: Operation) -> Result:
        loops = axes(operation)
        if loops.tensor.dtype is torch.bool:
            raise Declined("position in booleans")
        body = loops.element(widened(loops.tensor.dtype))
        value = convert(loops.reduce(op, body), loops.tensor.dtype)
        return value, loops.reduce(where, body, torch.int64)

    return lower


record(Kind.reduction, with_position("max", "argmax"), "max.dim")
record(Kind.reduction, with_position("min", "argmin"), "min.dim")


def moments(operation: Operation) -> tuple[Expr, Expr]:
    """The variance by two passes, and the mean."""
    dtype = widened(operation.output.dtype)
    first, second = axes(operation, "m"), axes(operation, "v")
    average = divided(first.reduce("sum", first.element(dtype)), first.count)
    gap = call("sub", second.element(dtype), average)
    square_sum = second.reduce("sum", call("mul", gap, gap))
    return call("div", square_sum, degrees_of_freedom(operation, first.count, dtype)), average


def degrees_of_freedom(operation: Operation, count: Index, dtype: torch.dtype) -> Expr:
    """`max(count - correction, 0)`."""
    correction = operation.arguments.get("correction")
    correction = 1 if correction is None else correction
    if isinstance(count, Int):
        return constant(max(count.value - correction, 0), dtype)
    if not isinstance(correction, int):
        raise Declined("correction")
    return number_of(maximum(count - correction, Int(0)), dtype)


@rule(Kind.reduction, "var.correction")
def var(operation: Operation) -> Result:
    return (convert(moments(operation)[0], operation.output.dtype),)


@rule(Kind.reduction, "std.correction")
def std(operation: Operation) -> Result:
    return (convert(call("sqrt", moments(operation)[0]), operation.output.dtype),)


@rule(Kind.reduction, "var_mean.correction")
def var_mean(operation: Operation) -> Result:
    variance, average = moments(operation)
    return convert(variance, operation.output.dtype), convert(average, operation.output.dtype)


@rule(Kind.reduction, "linalg_vector_norm")
def vector_norm(operation: Operation) -> Result:
    order, loops = operation.number("ord"), axes(operation)
    dtype = widened(operation.output.dtype)
    x = loops.element(dtype)
    if order == 2:
        norm: Expr = call("sqrt", loops.reduce("sum", call("mul", x, x)))
    elif order == 1:
        norm = loops.reduce("sum", call("abs", x))
    elif order == math.inf:
        norm = loops.reduce("max", call("abs", x))
    else:
        raise Declined(f"norm of order {order}")
    return (convert(norm, operation.output.dtype),)
