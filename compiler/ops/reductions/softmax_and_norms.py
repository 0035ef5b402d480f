"""Operators of several reductions over the same rows: softmax and layer norm with their gradients."""

from __future__ import annotations

import math

import torch

from assay.compiler.ir.loops.index import ONE, ZERO, Index, Symbol
from assay.compiler.ir.loops.kernel import Expr, Loop, Reduce
from assay.compiler.ir.loops.lowered import Tensor, coordinates
from assay.compiler.ir.loops.rewrite import call, constant, convert, widened
from assay.compiler.ops.pointwise.pointwise import finish
from assay.compiler.ops.reductions.reduction import Axes, dims_of, divided
from assay.compiler.ops.registry import Declined, Kind, Operation, Result, element, record, rule


def row(operation: Operation, name: str, unique: str) -> Axes:
    """The loops over dimension `dim` of an argument, for each coordinate of the output."""
    tensor = operation.tensor(name)
    return Axes(tensor, dims_of(operation["dim"], len(tensor.shape)), True, f"{operation.name}_{unique}")


def shifted(operation: Operation) -> tuple[Expr, Expr]:
    """`x - max(x)` and `sum(exp(x - max(x)))` along the row."""
    if operation.arguments.get("half_to_float"):
        raise Declined("half to float")
    dtype = widened(operation.output.dtype)
    peak_row, sum_row = row(operation, "self", "m"), row(operation, "self", "s")
    peak = peak_row.reduce("max", peak_row.element(dtype))
    total = sum_row.reduce("sum", call("exp", call("sub", sum_row.element(dtype), peak)))
    return call("sub", operation.value("self", dtype), peak), total


def probabilities(operation: Operation) -> Expr:
    """The softmax along the row: one division a row, as a machine multiplies many times faster than it divides."""
    x, total = shifted(operation)
    return call("mul", call("exp", x), call("reciprocal", total))


@rule(Kind.composite, "_softmax")
def softmax(operation: Operation) -> Result:
    return finish(operation, probabilities(operation))


@rule(Kind.composite, "_safe_softmax")
def safe_softmax(operation: Operation) -> Result:
    """Softmax, with zeros instead of NaN for rows that are masked whole."""
    if operation["dtype"] not in (None, operation.tensor("self").dtype):
        raise Declined("another dtype")
    dtype = widened(operation.output.dtype)
    peak_row = row(operation, "self", "p")
    masked = call("eq", peak_row.reduce("max", peak_row.element(dtype)), constant(-math.inf, dtype))
    y = probabilities(operation)
    return finish(operation, call("where", masked, constant(0, dtype), y, dtype=dtype))


@rule(Kind.composite, "_log_softmax")
def log_softmax(operation: Operation) -> Result:
    x, total = shifted(operation)
    return finish(operation, call("sub", x, call("log", total)))


@rule(Kind.composite, "_softmax_backward_data")
def softmax_backward(operation: Operation) -> Result:
    dtype = widened(operation.output.dtype)
    gradients, outputs = row(operation, "grad_output", "g"), row(operation, "output", "g")
    body = call("mul", gradients.element(dtype), outputs.element(dtype))
    dot = gradients.reduce("sum", body)
    y = operation.value("output", dtype)
    return finish(operation, call("mul", call("sub", operation.value("grad_output", dtype), dot), y))


@rule(Kind.composite, "_log_softmax_backward_data")
def log_softmax_backward(operation: Operation) -> Result:
    dtype = widened(operation.output.dtype)
    gradients = row(operation, "grad_output", "g")
    scaled = call(
        "mul", call("exp", operation.value("output", dtype)), gradients.reduce("sum", gradients.element(dtype))
    )
    return finish(operation, call("sub", operation.value("grad_output", dtype), scaled))


# ---- layer norm ----------------------------------------------------------------------------------------------------


def norm_axes(operation: Operation, tensor: Tensor, unique: str) -> Axes:
    """The loops over the normalized dimensions of a tensor."""
    rank, inner = len(tensor.shape), len(operation["normalized_shape"])
    return Axes(tensor, tuple(range(rank - inner, rank)), True, f"{operation.name}_{unique}")


def affine(operation: Operation, name: str, at: tuple[Index, ...], dtype: torch.dtype) -> Expr | None:
    """The weight or bias at coordinates of the input, or None where there is none."""
    if operation[name] is None:
        return None
    tensor = operation.tensor(name)
    return element(tensor, at[len(at) - len(tensor.shape) :], dtype)


@rule(Kind.composite, "native_layer_norm")
def layer_norm(operation: Operation) -> Result:
    source = operation.tensor("input")
    dtype = widened(source.dtype)
    first, second = norm_axes(operation, source, "m"), norm_axes(operation, source, "v")
    mean = divided(first.reduce("sum", first.element(dtype)), first.count)
    gap = call("sub", second.element(dtype), mean)
    variance = divided(second.reduce("sum", call("mul", gap, gap)), second.count)
    rstd = call("rsqrt", call("add", variance, constant(operation.number("eps"), dtype)))
    at = coordinates(len(source.shape))
    y: Expr = call("mul", call("sub", element(source, at, dtype), mean), rstd)
    weight, bias = affine(operation, "weight", at, dtype), affine(operation, "bias", at, dtype)
    y = y if weight is None else call("mul", y, weight)
    y = call("add", y, constant(0, dtype) if bias is None else bias)  # a sum of zeros is +0
    dtypes = [output.dtype if output else source.dtype for output in operation.outputs]
    return convert(y, dtypes[0]), convert(mean, dtypes[1]), convert(rstd, dtypes[2])


@rule(Kind.composite, "native_layer_norm_backward")
def layer_norm_backward(operation: Operation) -> Result:
    source = operation.tensor("input")
    rank, inner = len(source.shape), len(operation["normalized_shape"])
    at = coordinates(rank)
    dtype = widened(source.dtype)
    dtypes = [output.dtype if output else source.dtype for output in operation.outputs]
    to_input = convert(_gradient_of_input(operation, at, dtype), dtypes[0])
    reduced = tuple(Loop(f"{operation.name}_w_{i}", source.shape[i]) for i in range(rank - inner))
    to_weight = Reduce("sum", reduced, call("mul", *_normalized(operation, _outer(reduced, inner), dtype)), dtype)
    reduced = tuple(Loop(f"{operation.name}_b_{i}", source.shape[i]) for i in range(rank - inner))
    to_bias = Reduce("sum", reduced, _normalized(operation, _outer(reduced, inner), dtype)[0], dtype)
    return to_input, convert(to_weight, dtypes[1]), convert(to_bias, dtypes[2])


def _outer(reduced: tuple[Loop, ...], inner: int) -> tuple[Index, ...]:
    """Coordinates of the input with the outer dimensions reduced over."""
    return (*(Symbol(loop.var) for loop in reduced), *coordinates(inner))


def _normalized(operation: Operation, at: tuple[Index, ...], dtype: torch.dtype) -> tuple[Expr, Expr]:
    """The gradient of the output and `(x - mean) * rstd`, at coordinates of the input."""
    mean, rstd = operation.tensor("mean"), operation.tensor("rstd")
    row_at = tuple(ZERO if extent is ONE else index for extent, index in zip(mean.shape, at, strict=True))
    gap = call("sub", element(operation.tensor("input"), at, dtype), element(mean, row_at, dtype))
    normal = call("mul", gap, element(rstd, row_at, dtype))
    return element(operation.tensor("grad_out"), at, dtype), normal


def _scaled_gradient(operation: Operation, at: tuple[Index, ...], dtype: torch.dtype) -> tuple[Expr, Expr]:
    gradient, normal = _normalized(operation, at, dtype)
    weight = affine(operation, "weight", at, dtype)
    return gradient if weight is None else call("mul", gradient, weight), normal


def _gradient_of_input(operation: Operation, at: tuple[Index, ...], dtype: torch.dtype) -> Expr:
    """`rstd * (g*w - mean(g*w) - normal * slope)`, where `slope = mean(g*w * normal) - mean(g*w) * mean(normal)`.

    The mean of `normal` is 0 but for its rounding. Without it the gradient for equal `g*w` would be that rounding.
    """
    source = operation.tensor("input")
    first, second, third = (norm_axes(operation, source, unique) for unique in "def")
    gradient, normal = _scaled_gradient(operation, at, dtype)
    mean = divided(first.reduce("sum", _scaled_gradient(operation, first.at, dtype)[0]), first.count)
    sum_of_both = second.reduce("sum", call("mul", *_scaled_gradient(operation, second.at, dtype)))
    rounding = third.reduce("sum", _normalized(operation, third.at, dtype)[1])
    slope = divided(call("sub", sum_of_both, call("mul", mean, rounding)), second.count)
    centered = call("sub", call("sub", gradient, mean), call("mul", normal, slope))
    rstd = operation.tensor("rstd")
    row_at = tuple(ZERO if extent is ONE else index for extent, index in zip(rstd.shape, at, strict=True))
    return call("mul", element(rstd, row_at, dtype), centered)


UNDECOMPOSED = (
    "native_batch_norm native_batch_norm_backward _native_batch_norm_legit _native_batch_norm_legit.no_stats"
    " _native_batch_norm_legit_functional _native_batch_norm_legit_no_training _batch_norm_with_update"
    " batch_norm_backward native_group_norm native_group_norm_backward _fused_rms_norm _fused_rms_norm_backward"
    " nll_loss_backward"
)
record(Kind.composite, None, *UNDECOMPOSED.split())
