"""Activations and their gradients: formulas over floating point values, most of one tensor."""

from __future__ import annotations

import math

import torch

from assay.compiler.ir.loops.index import Index
from assay.compiler.ir.loops.kernel import AsValue, Expr
from assay.compiler.ir.loops.lowered import Tensor, coordinates
from assay.compiler.ir.loops.rewrite import call, convert
from assay.compiler.ops.pointwise.pointwise import (
    Formula,
    _number,
    compute_dtype,
    finish,
    formula,
    is_below_zero,
    needs_floats,
)
from assay.compiler.ops.registry import Kind, Operation, Result, element, number_of, rule


@formula("self", targets=("celu",))
def celu(operation: Operation, x: Formula) -> Formula:
    alpha = _number(operation, "alpha")
    return is_below_zero(operation, x).where((x * (1.0 / alpha)).of("expm1") * alpha, x)


@formula("self", targets=("hardshrink",))
def hardshrink(operation: Operation, x: Formula) -> Formula:
    limit = _number(operation, "lambd")
    return ((x >= -limit) & (x <= limit)).where(0.0, x)


@formula("self", targets=("softshrink",))
def softshrink(operation: Operation, x: Formula) -> Formula:
    """Inside the limits `0 * x`, which keeps NaN and, as on the CPU alone, the sign of zero."""
    limit = _number(operation, "lambd")
    inside = x * 0.0 if operation.output.device.type == "cpu" else x.of("isnan").where(x, 0.0)
    return (x > limit).where(x - limit, (x < -limit).where(x + limit, inside))


@formula("grad_out", "self", targets=("hardshrink_backward",))
def hardshrink_backward(operation: Operation, gradient: Formula, x: Formula) -> Formula:
    """0 for NaN, as eager's vectorised loop has it."""
    limit = _number(operation, "lambd")
    return ((x > limit) | (x < -limit)).where(gradient, 0.0)


@formula("grad_output", "self", targets=("softshrink_backward",))
def softshrink_backward(operation: Operation, gradient: Formula, x: Formula) -> Formula:
    return hardshrink_backward(operation, gradient, x)


@rule(Kind.pointwise, "log_sigmoid_forward")
def log_sigmoid(operation: Operation) -> Result:
    """`min(x, 0) - log1p(exp(-|x|))`, and the exponential for backward."""
    needs_floats(operation)
    x = Formula(operation.value("self", compute_dtype(operation)))
    small = (-x.of("abs")).of("exp")
    y = x.minimum(0.0) - small.of("log1p")
    return tuple(
        None if o is None else convert(v.expr, o.dtype) for o, v in zip(operation.outputs, (y, small), strict=True)
    )


@formula("grad_output", "self", targets=("log_sigmoid_backward",))
def log_sigmoid_backward(operation: Operation, gradient: Formula, x: Formula) -> Formula:
    """From x alone: the buffer of forward is never read, so that forward need not write it."""
    small = (-x.of("abs")).of("exp")
    share = small / (small + 1.0)
    return gradient * (x < 0.0).where(1.0 - share, share)


@formula("grad_output", "self", targets=("mish_backward",))
def mish_backward(operation: Operation, gradient: Formula, x: Formula) -> Formula:
    t = x.of("exp").of("log1p").of("tanh")
    return gradient * (t + x * x.of("sigmoid") * (1.0 - t * t))


@formula("self", "weight", targets=("_prelu_kernel",))
def prelu(operation: Operation, x: Formula, weight: Formula) -> Formula:
    return (x > 0.0).where(x, weight * x)


@rule(Kind.pointwise, "_prelu_kernel_backward")
def prelu_backward(operation: Operation) -> Result:
    """The gradients of input and (before it is summed) of weight."""
    dtype = compute_dtype(operation)
    gradient, x, weight = (Formula(operation.value(name, dtype)) for name in ("grad_output", "self", "weight"))
    is_right = x > 0.0
    to_input, to_weight = is_right.where(gradient, weight * gradient), is_right.where(0.0, x * gradient)
    pairs = zip(operation.outputs, (to_input, to_weight), strict=True)
    return tuple(None if output is None else convert(value.expr, output.dtype) for output, value in pairs)


@formula("self", targets=("logit",))
def logit(operation: Operation, x: Formula) -> Formula:
    """A negative `eps` is no limit."""
    if operation["eps"] is None or limits(operation)[0] < 0.0:
        return (x / (1.0 - x)).of("log")
    low, high = limits(operation)
    x = (x < low).where(low, (x > high).where(high, x))
    return (x / (1.0 - x)).of("log")


def limits(operation: Operation) -> tuple[float, float]:
    """`eps` and `1 - eps`, as numbers of the tensor's dtype."""
    low = torch.tensor(_number(operation, "eps"), dtype=operation.output.dtype)
    return low.item(), (1 - low).item()


@formula("grad_output", "self", targets=("logit_backward",))
def logit_backward(operation: Operation, gradient: Formula, x: Formula) -> Formula:
    """With limits 0 outside of them and for NaN, as eager's vectorised loop has it; without, NaN outside of [0, 1].

    A negative `eps` is no limit.
    """
    slope = gradient / (x * (1.0 - x))
    if operation["eps"] is None or limits(operation)[0] < 0.0:
        return ((x >= 0.0) & (x <= 1.0)).where(slope, math.nan)
    low, high = limits(operation)
    return ((x >= low) & (x <= high)).where(slope, 0.0)


@formula("grad_output", "self", "noise", targets=("rrelu_with_noise_backward",))
def rrelu_backward(operation: Operation, gradient: Formula, x: Formula, noise: Formula) -> Formula:
    """In training the slopes that forward drew; else their mean."""
    lower, upper = _number(operation, "lower"), _number(operation, "upper")
    if operation["training"] and upper - lower > 1e-6:
        return noise * gradient
    return (x > 0.0).where(gradient, gradient * ((lower + upper) / 2))


# ---- gated linear units: halves of one dimension -------------------------------------------------------------------


def half(operation: Operation, tensor: Tensor, at: tuple[Index, ...], is_second: bool) -> Expr:
    """The element of one half of dimension `dim` of a tensor, `at` being coordinates in a half."""
    dim = operation["dim"] % len(tensor.shape)
    offset = tensor.shape[dim] // 2 if is_second else 0
    place = (*at[:dim], at[dim] + offset, *at[dim + 1 :])
    return element(tensor, place, compute_dtype(operation))


@rule(Kind.pointwise, "glu")
def glu(operation: Operation) -> Result:
    tensor = operation.tensor("self")
    at = coordinates(len(tensor.shape))
    value, gate = (Formula(half(operation, tensor, at, second)) for second in (False, True))
    return finish(operation, (value * gate.of("sigmoid")).expr)


@rule(Kind.pointwise, "glu_backward")
def glu_backward(operation: Operation) -> Result:
    """`g * s` in the first half, `g * x * s * (1 - s)` in the second, with `s` the sigmoid of the gate."""
    tensor, upper = operation.tensor("self"), operation.tensor("grad_output")
    dim, dtype = operation["dim"] % len(tensor.shape), compute_dtype(operation)
    own = coordinates(len(tensor.shape))
    extent = tensor.shape[dim] // 2
    at = (*own[:dim], own[dim] % extent, *own[dim + 1 :])
    value, gate = (Formula(half(operation, tensor, at, second)) for second in (False, True))
    gradient, s = Formula(element(upper, at, dtype)), gate.of("sigmoid")
    is_first = Formula(call("lt", AsValue(own[dim], torch.int64), number_of(extent, torch.int64)))
    return finish(operation, is_first.where(gradient * s, (1.0 - s) * s * gradient * value).expr)
