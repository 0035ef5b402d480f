"""Reductions: `out[d] = op over the reduced dimensions of body`."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from assay.compiler.ir.loops.index import Index, Int, Symbol, maximum, minimum, product
from assay.compiler.ir.loops.kernel import Expr, Loop, Reduce, ReduceOp
from assay.compiler.ir.loops.lowered import Tensor, coordinates
from assay.compiler.ir.loops.rewrite import call, constant, convert, widened
from assay.compiler.ops.registry import Declined, Kind, Operation, Result, element, number_of, record, rule


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
    """A rule: any or all. Of uint8 the result is uint8 too."""

    def lower(operation: Operation) -> Result:
        loops = axes(operation)
        return (convert(loops.reduce(op, loops.element(torch.bool)), operation.output.dtype),)

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
    """A rule: the extremum along one dimension, and its first position; booleans as the numbers 0 and 1."""

    def lower(operation: Operation) -> Result:
        loops = axes(operation)
        dtype = loops.tensor.dtype
        body = loops.element(torch.uint8 if dtype is torch.bool else widened(dtype))
        return convert(loops.reduce(op, body), dtype), loops.reduce(where, body, torch.int64)

    return lower


record(Kind.reduction, with_position("max", "argmax"), "max.dim")
record(Kind.reduction, with_position("min", "argmin"), "min.dim")


def moments(operation: Operation) -> tuple[Expr, Expr]:
    """The variance by two passes, and the mean.

    On a CPU the mean is taken in float64, as by eager: that of equal numbers is each of them, and they have no spread.
    """
    dtype = widened(operation.output.dtype)
    first, second = axes(operation, "m"), axes(operation, "v")
    summed_in = torch.float64 if first.tensor.device.type == "cpu" else dtype
    average = convert(divided(first.reduce("sum", first.element(summed_in)), first.count), dtype)
    gap = call("sub", second.element(dtype), average)
    square_sum = second.reduce("sum", call("mul", gap, gap))
    return call("div", square_sum, degrees_of_freedom(operation, first.count, dtype)), average


def degrees_of_freedom(operation: Operation, count: Index, dtype: torch.dtype) -> Expr:
    """`max(count - correction, 0)`, and 0 of no elements, whose variance is NaN with every correction."""
    correction = operation.arguments.get("correction")
    correction = 1 if correction is None else correction
    if isinstance(count, Int) and isinstance(correction, int | float):
        return constant(max(count.value - correction, 0) if count.value else 0, dtype)
    if isinstance(correction, Index):  # a number that changes: beyond 64 bits the difference would turn around
        left = call("sub", number_of(count, dtype), number_of(correction, dtype))
        return call("mul", call("maximum", left, constant(0.0, dtype)), _is_any(count, dtype))
    if not isinstance(correction, int):
        raise Declined("correction")
    freedom = number_of(maximum(count - correction, Int(0)), dtype)
    return freedom if correction >= 0 else call("mul", freedom, _is_any(count, dtype))


def _is_any(count: Index, dtype: torch.dtype) -> Expr:
    """1, or 0 of no elements."""
    return call("minimum", number_of(count, dtype), constant(1.0, dtype))


def spread(op: str, with_mean: bool, *targets: str) -> None:
    """Records the variance or its square root, by itself or with the mean."""

    def lower(operation: Operation) -> Result:
        variance, average = moments(operation)
        value = call("sqrt", variance) if op == "std" else variance
        dtype = operation.output.dtype
        return (convert(value, dtype), convert(average, dtype)) if with_mean else (convert(value, dtype),)

    record(Kind.reduction, lower, *targets)


spread("var", False, "var.correction")
spread("std", False, "std.correction")
spread("var", True, "var_mean.correction")
spread("std", True, "std_mean.correction")


# ---- norms -----------------------------------------------------------------------------------------------------------


def norm_of(body: Expr, order: float, reduce: Callable[[ReduceOp, Expr], Expr], count: Index) -> Expr:
    """`(sum |x|^p)^(1/p)`; for 0 the number of those that are not 0, for infinities the extremes. Of one element every
    norm but that of order 0 is its absolute value: no power of it overflows, and a NaN as the order is not read. Of no
    elements a NaN is not read either."""
    size = call("abs", body)
    if order in (math.inf, -math.inf) or (count == Int(1) and order != 0):
        return reduce("max" if order > 0 else "min", size)
    if order == 0:
        return reduce("sum", convert(call("ne", body, constant(0, body.dtype)), body.dtype))
    if order == 1 or (count == Int(0) and math.isnan(order)):
        return reduce("sum", size)
    if order == 2:
        return call("sqrt", reduce("sum", call("mul", body, body)))
    powers = reduce("sum", call("pow", size, constant(order, body.dtype)))
    return call("pow", powers, constant(1 / order, body.dtype))


def norm(name: str, otherwise: float | None, *targets: str) -> None:
    """Records a norm over dimensions, its order by argument `name`, `otherwise` where that is None."""

    def lower(operation: Operation) -> Result:
        order = otherwise if operation[name] is None else float(operation.number(name))
        loops, output = axes(operation), operation.output
        if order is None or not output.dtype.is_floating_point:
            raise Declined(f"norm of order {order}")
        value = norm_of(loops.element(widened(output.dtype)), order, loops.reduce, loops.count)
        return (convert(value, output.dtype),)

    record(Kind.reduction, lower, *targets)


norm("ord", None, "linalg_vector_norm")
norm("p", 2.0, "norm.Scalar", "norm.ScalarOpt_dim", "norm.ScalarOpt_dtype", "norm.ScalarOpt_dim_dtype")


@rule(Kind.reduction, "renorm")
def renorm(operation: Operation) -> Result:
    """Each slice along `dim`, scaled down to norm `maxnorm` where it is longer.

    Raises: Declined where the result lies otherwise than its argument: the scaled numbers of a slice would be stored
    far apart. Eager copies the argument first, which takes a fraction of the time.
    """
    tensor, dtype = operation.tensor("self"), widened(operation.output.dtype)
    if tensor.stride != operation.output.stride:
        raise Declined("a result that lies otherwise than the argument")
    kept = operation["dim"] % len(tensor.shape)
    others = tuple(dim for dim in range(len(tensor.shape)) if dim != kept)
    loops = Axes(tensor, others, True, f"{operation.name}_r")
    size = norm_of(loops.element(dtype), float(operation.number("p")), loops.reduce, loops.count)
    limit, one = constant(operation.number("maxnorm"), dtype), constant(1, dtype)
    shrink = call("div", limit, call("add", size, constant(1e-7, dtype)))
    factor = call("where", call("gt", size, limit), shrink, one, dtype=dtype)
    return (convert(call("mul", operation.value("self", dtype), factor), operation.output.dtype),)


# ---- counts, sums of some, extremes of both kinds --------------------------------------------------------------------


@rule(Kind.reduction, "count_nonzero", "count_nonzero.dim_IntList")
def count_nonzero(operation: Operation) -> Result:
    loops = axes(operation)
    return (loops.reduce("sum", convert(loops.element(torch.bool), torch.int64)),)


@rule(Kind.reduction, "nansum")
def nansum(operation: Operation) -> Result:
    """The sum without the NaNs, which are judged in the dtype of the input."""
    loops, output = axes(operation), operation.output
    value = loops.element(widened(output.dtype))
    if loops.tensor.dtype.is_floating_point and output.dtype.is_floating_point:
        value = call("where", call("isnan", value), constant(0, value.dtype), value, dtype=value.dtype)
    return (convert(loops.reduce("sum", value), output.dtype),)


@rule(Kind.reduction, "aminmax")
def aminmax(operation: Operation) -> Result:
    loops = axes(operation)
    dtype = loops.tensor.dtype
    is_bool = dtype is torch.bool
    low, high = (
        loops.reduce(op, loops.element(widened(dtype))) for op in (("all", "any") if is_bool else ("min", "max"))
    )
    return convert(low, dtype), convert(high, dtype)


@rule(Kind.reduction, "logsumexp")
def logsumexp(operation: Operation) -> Result:
    """`log(sum exp(x - m)) + m`, with m the largest value, or 0 where that is infinite."""
    dtype = widened(operation.output.dtype)
    first, second = axes(operation, "m"), axes(operation, "s")
    if not operation.tensor("self").dtype.is_floating_point:
        raise Declined("integers")
    peak = first.reduce("max", first.element(dtype))
    peak = call("where", call("isinf", peak), constant(0, dtype), peak, dtype=dtype)
    total = second.reduce("sum", call("exp", call("sub", second.element(dtype), peak)))
    return (convert(call("add", call("log", total), peak), operation.output.dtype),)


@rule(Kind.reduction, "trace")
def trace(operation: Operation) -> Result:
    tensor, output = operation.tensor("self"), operation.output
    loop = Loop(f"{operation.name}_t", minimum(tensor.shape[0], tensor.shape[1]))
    at = (Symbol(loop.var), Symbol(loop.var))
    value = Reduce("sum", (loop,), element(tensor, at, widened(output.dtype)), widened(output.dtype))
    return (convert(value, output.dtype),)
