"""Reductions of complex numbers that are not the same for either part: means, norms, moments, tests."""

from __future__ import annotations

from collections.abc import Callable

import torch

from assay.compiler.ir.loops.index import ONE, ZERO, Index
from assay.compiler.ir.loops.kernel import Element, ReduceOp
from assay.compiler.ir.loops.rewrite import call, constant, convert, on_lane
from assay.compiler.ops.complex.numbers import Complex, lane_of, of_real, record_complex, result
from assay.compiler.ops.pointwise.pointwise import Formula
from assay.compiler.ops.reductions.reduction import Axes, axes, degrees_of_freedom, norm_of
from assay.compiler.ops.registry import Declined, Operation, Result, Rule, number_of


def part(loops: Axes, lane: Index, dtype: torch.dtype) -> Formula:
    """A part of the elements that a reduction runs over."""
    tensor = loops.tensor
    return Formula(convert(Element(tensor.name, (*loops.at, lane), tensor.dtype.to_real()), dtype))


def reduced_parts(loops: Axes, dtype: torch.dtype) -> Complex:
    """The elements that a reduction runs over."""
    return Complex(part(loops, ZERO, dtype), part(loops, ONE, dtype))


def reduction(*targets: str) -> Callable[[Rule], Rule]:
    """Declares a function as the rule for complex numbers of reductions."""

    def declare(function: Rule) -> Rule:
        def lower(operation: Operation) -> Result:
            if not operation.tensor("self").dtype.is_complex:
                raise Declined("a complex result of real numbers")
            return function(operation)

        record_complex(lower, *targets)
        return function

    return declare


@reduction("mean.default", "mean.dim")
def mean(operation: Operation) -> Result:
    """The sum, divided by a complex number; on a GPU either part of it, multiplied by the share of each number."""
    loops, dtype = axes(operation), operation.output.dtype.to_real()
    x = reduced_parts(loops, dtype)
    total = Complex(*(Formula(loops.reduce("sum", each.expr)) for each in (x.real, x.imag)))
    number = number_of(loops.count, dtype)
    if operation.output.device.type != "cpu":
        share = Formula(call("div", constant(1.0, dtype), number))
        return result(operation, Complex(total.real * share, total.imag * share))
    return result(operation, total / Complex(Formula(number), Formula(constant(0.0, dtype))))


def truth(op: ReduceOp) -> Rule:
    """A rule: any or all; a number is true where either part is not zero."""

    def lower(operation: Operation) -> Result:
        loops = axes(operation)
        x = reduced_parts(loops, operation.tensor("self").dtype.to_real())
        return (convert(loops.reduce(op, x.is_equal(of_real(0.0, x)).of("logical_not").expr), operation.output.dtype),)

    return lower


reduction("any.default", "any.dim", "any.dims")(truth("any"))
reduction("all.default", "all.dim", "all.dims")(truth("all"))


@reduction("count_nonzero", "count_nonzero.dim_IntList")
def count_nonzero(operation: Operation) -> Result:
    loops = axes(operation)
    x = reduced_parts(loops, operation.tensor("self").dtype.to_real())
    is_counted = x.is_equal(of_real(0.0, x)).of("logical_not").expr
    return (loops.reduce("sum", convert(is_counted, torch.int64)),)


def norm(name: str, otherwise: float | None, *targets: str) -> None:
    """Records a norm of absolute values, its order by argument `name`, `otherwise` where that is None."""

    def lower(operation: Operation) -> Result:
        order = otherwise if operation[name] is None else float(operation.number(name))
        loops, output = axes(operation), operation.output
        if order is None or output.dtype.is_complex:
            raise Declined(f"norm of order {order}")
        body = reduced_parts(loops, output.dtype).abs().expr
        return (norm_of(body, order, loops.reduce, loops.count),)

    reduction(*targets)(lower)


norm("ord", None, "linalg_vector_norm")
norm("p", 2.0, "norm.Scalar", "norm.ScalarOpt_dim", "norm.ScalarOpt_dtype", "norm.ScalarOpt_dim_dtype")


def spread(root: bool, with_mean: bool, *targets: str) -> None:
    """Records the variance, of the real parts and the imaginary together, or its root, also with the mean."""

    def lower(operation: Operation) -> Result:
        first, second = axes(operation, "m"), axes(operation, "v")
        dtype = operation.tensor("self").dtype.to_real()
        count = number_of(first.count, dtype)
        average = [
            Formula(first.reduce("sum", each.expr)) / Formula(count) for each in _pair(reduced_parts(first, dtype))
        ]
        gaps = [each - mean for each, mean in zip(_pair(reduced_parts(second, dtype)), average, strict=True)]
        freedom = Formula(degrees_of_freedom(operation, first.count, dtype))
        real, imaginary = (Formula(second.reduce("sum", (gap * gap).expr)) / freedom for gap in gaps)
        value = (real + imaginary).of("sqrt") if root else real + imaginary
        rank = next(len(output.shape) for output in operation.outputs if output is not None)
        mean = on_lane(lane_of(rank), *(each.expr for each in average))
        return (value.expr, mean) if with_mean else (value.expr,)

    reduction(*targets)(lower)


def _pair(value: Complex) -> tuple[Formula, Formula]:
    return value.real, value.imag


spread(False, False, "var.correction")
spread(True, False, "std.correction")
spread(False, True, "var_mean.correction")
spread(True, True, "std_mean.correction")
