"""Losses and their gradients: a formula an element, then no reduction, the mean or the sum over all of them."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from enum import IntEnum

import torch

from assay.compiler.ir.loops.index import ONE, ZERO, Index, Symbol, product
from assay.compiler.ir.loops.kernel import Check, Loop, Reduce
from assay.compiler.ir.loops.lowered import Tensor
from assay.compiler.ir.loops.rewrite import call
from assay.compiler.ir.tensors.refusals import as_eager
from assay.compiler.ops.pointwise.pointwise import Formula, _number, compute_dtype, finish, formula, needs_floats
from assay.compiler.ops.reductions.reduction import divided, norm_of
from assay.compiler.ops.registry import Declined, Kind, Operation, Result, element, number_of, record, rule

Body = Callable[..., Formula]


class Reduction(IntEnum):
    none = 0
    mean = 1
    sum = 2


def reduction_of(operation: Operation) -> Reduction:
    return Reduction(int(_number(operation, "reduction")))


def common_shape(tensors: Sequence[Tensor]) -> tuple[Index, ...]:
    """The shape that tensors are broadcast to. Raises: Declined where sizes leave it open."""
    rank = max(len(tensor.shape) for tensor in tensors)
    padded = [(ONE,) * (rank - len(tensor.shape)) + tensor.shape for tensor in tensors]
    shape = []
    for extents in zip(*padded, strict=True):
        others = {extent for extent in extents if extent is not ONE}
        if len(others) > 1:
            raise Declined("sizes that may be equal")
        shape.append(others.pop() if others else ONE)
    return tuple(shape)


def values_at(
    operation: Operation, names: Sequence[str], at: tuple[Index, ...], dtype: torch.dtype
) -> list[Formula | None]:
    """The named tensors, broadcast, at coordinates of their common shape; None for those that are not given."""
    values: list[Formula | None] = []
    for name in names:
        if operation[name] is None:
            values.append(None)
            continue
        tensor = operation.tensor(name)
        values.append(Formula(element(tensor, broadcast_at(tensor, at), dtype)))
    return values


def broadcast_at(tensor: Tensor, at: tuple[Index, ...]) -> tuple[Index, ...]:
    """The coordinates of a tensor at those of the shape that it is broadcast to."""
    own = at[len(at) - len(tensor.shape) :]
    return tuple(ZERO if extent is ONE else d for extent, d in zip(tensor.shape, own, strict=True))


def loss(*names: str, targets: tuple[str, ...]) -> Callable[[Body], Body]:
    """Declares `function(operation, *values)`, the loss of one element, as a rule with the operator's reduction."""

    def declare(function: Body) -> Body:
        def lower(operation: Operation) -> Result:
            needs_floats(operation)
            tensors = [operation.tensor(name) for name in names if operation[name] is not None]
            shape, dtype = common_shape(tensors), compute_dtype(operation)
            loops = tuple(Loop(f"{operation.name}_l_{dim}", extent) for dim, extent in enumerate(shape))
            reduction = reduction_of(operation)
            inner = tuple(
                Symbol(f"d{dim}" if reduction is Reduction.none else loop.var) for dim, loop in enumerate(loops)
            )
            each = function(operation, *values_at(operation, names, inner, dtype)).expr
            if reduction is Reduction.none:
                return finish(operation, each)
            total = Reduce("sum", loops, each, dtype)
            return finish(operation, total if reduction is Reduction.sum else divided(total, product(shape)))

        record(Kind.reduction, lower, *targets)
        return function

    return declare


def shared(operation: Operation, gradient: Formula) -> Formula:
    """The gradient of the loss of one element: for the mean a part of that of the result."""
    if reduction_of(operation) is not Reduction.mean:
        return gradient
    return gradient / Formula(number_of(product(operation.output.shape), compute_dtype(operation)))


@loss("self", "target", targets=("huber_loss",))
def huber_loss(operation: Operation, x: Formula, target: Formula) -> Formula:
    delta, gap = _number(operation, "delta"), (x - target).of("abs")
    return (gap <= delta).where(0.5 * gap * gap, delta * (gap - 0.5 * delta))


@formula("grad_output", "self", "target", targets=("huber_loss_backward",))
def huber_loss_backward(operation: Operation, gradient: Formula, x: Formula, target: Formula) -> Formula:
    delta, gap, part = _number(operation, "delta"), x - target, shared(operation, gradient)
    outside = (gap > delta).where(part * delta, gap * part)
    return (gap < -delta).where(-part * delta, outside)


@loss("self", "target", targets=("smooth_l1_loss",))
def smooth_l1_loss(operation: Operation, x: Formula, target: Formula) -> Formula:
    beta, gap = _number(operation, "beta"), (x - target).of("abs")
    return (gap < beta).where(0.5 * gap * gap / (beta or 1.0), gap - 0.5 * beta)


@formula("grad_output", "self", "target", targets=("smooth_l1_loss_backward",))
def smooth_l1_loss_backward(operation: Operation, gradient: Formula, x: Formula, target: Formula) -> Formula:
    beta, gap, part = _number(operation, "beta"), x - target, shared(operation, gradient)
    inside = gap * part / (beta or 1.0)
    return (gap <= -beta).where(-part, (gap >= beta).where(part, inside))


def needs_range_of_exp(operation: Operation) -> None:
    """Raises: Declined for float16, in which eager keeps the exponential: of more than 11 it is infinite there."""
    if operation.output.dtype is torch.float16:
        raise Declined("an exponential in float16")


@loss("self", "target", targets=("soft_margin_loss",))
def soft_margin_loss(operation: Operation, x: Formula, target: Formula) -> Formula:
    needs_range_of_exp(operation)
    return (-target * x).of("exp").of("log1p")


@formula("grad_output", "self", "target", targets=("soft_margin_loss_backward",))
def soft_margin_loss_backward(operation: Operation, gradient: Formula, x: Formula, target: Formula) -> Formula:
    needs_range_of_exp(operation)
    z = (-target * x).of("exp")
    return -target * z / (z + 1.0) * shared(operation, gradient)


@loss("self", "target", "weight", "pos_weight", targets=("binary_cross_entropy_with_logits",))
def binary_cross_entropy_with_logits(
    operation: Operation, x: Formula, target: Formula, weight: Formula | None, positive: Formula | None
) -> Formula:
    """`(1 - y) * x + (1 + (p - 1) * y) * log(1 + exp(-x))`, times the weight."""
    other = (-x.of("abs")).of("exp").of("log1p") - x.minimum(0.0)
    scaled = other if positive is None else ((positive - 1.0) * target + 1.0) * other
    each = (1.0 - target) * x + scaled
    return each if weight is None else each * weight


def probability(value: Formula, failure: str) -> Formula:
    """The value, which fails outside of [0, 1]."""
    return Formula(Check(value.expr, ((value >= 0.0) & (value <= 1.0)).expr, failure, value.expr.dtype))


@functools.cache
def are_targets_checked() -> bool:
    """Whether eager rejects targets outside of [0, 1], as torch does of late. Asked of its kernel."""
    half, two = torch.full((1,), 0.5, device="cpu"), torch.full((1,), 2.0, device="cpu")
    with as_eager():
        try:
            torch.ops.aten.binary_cross_entropy.default(half, two)
        except RuntimeError:
            return True
    return False


@loss("self", "target", "weight", targets=("binary_cross_entropy",))
def binary_cross_entropy(operation: Operation, x: Formula, target: Formula, weight: Formula | None) -> Formula:
    """`-y log(x) - (1 - y) log(1 - x)`, no logarithm below -100; x outside of [0, 1] is rejected, and y where eager
    looks at it."""
    x = probability(x, "probability")
    if are_targets_checked():
        target = probability(target, "target probability")
    log, log_of_other = x.of("log").maximum(-100.0), (-x).of("log1p").maximum(-100.0)
    each = (target - 1.0) * log_of_other - target * log
    return each if weight is None else each * weight


@rule(Kind.pointwise, "binary_cross_entropy_backward")
def binary_cross_entropy_backward(operation: Operation) -> Result:
    """`g * (x - y) / max((1 - x) * x, 1e-12)`."""
    needs_floats(operation)
    dtype, names = compute_dtype(operation), ("grad_output", "self", "target")
    gradient, x, target = (Formula(operation.value(name, dtype)) for name in names)
    slope = gradient * (x - target) / ((1.0 - x) * x).maximum(1e-12)
    if operation["weight"] is not None:
        slope = slope * Formula(operation.value("weight", dtype))
    return finish(operation, shared(operation, slope).expr)


@rule(Kind.reduction, "dist")
def dist(operation: Operation) -> Result:
    """The norm of a difference."""
    needs_floats(operation)
    shape, dtype = common_shape([operation.tensor("self"), operation.tensor("other")]), compute_dtype(operation)
    loops = tuple(Loop(f"{operation.name}_l_{dim}", extent) for dim, extent in enumerate(shape))
    at = tuple(Symbol(loop.var) for loop in loops)
    a, b = (
        element(operation.tensor(name), broadcast_at(operation.tensor(name), at), dtype) for name in ("self", "other")
    )
    difference, order = call("sub", a, b), _number(operation, "p")
    return finish(operation, norm_of(difference, order, lambda op, x: Reduce(op, loops, x, dtype), product(shape)))
