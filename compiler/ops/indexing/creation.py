"""Creation: tensors that depend on sizes and numbers only."""

from __future__ import annotations

import torch

from assay.compiler.ir.loops.index import Symbol, as_index
from assay.compiler.ir.loops.kernel import AsValue, Expr
from assay.compiler.ir.loops.rewrite import call, constant, convert
from assay.compiler.ops.registry import Declined, Kind, Operation, Result, record, rule, value_of

WIDE = torch.float64


@rule(Kind.creation, "full", "full_like", "new_full", "fill.Scalar", "fill.Tensor")
def full(operation: Operation) -> Result:
    name = "value" if "value" in operation.arguments else "fill_value"
    operation.needs_room(name)
    return (operation.value(name, operation.output.dtype),)


@rule(Kind.creation, "scalar_tensor")
def scalar_tensor(operation: Operation) -> Result:
    operation.needs_room("s")
    return (operation.value("s", operation.output.dtype),)


@rule(Kind.creation, "zeros", "zeros_like", "new_zeros", "zero", "_efficientzerotensor")
def zeros(operation: Operation) -> Result:
    return (value_of(0, operation.output.shape, operation.output.dtype),)


@rule(Kind.creation, "ones", "ones_like", "new_ones")
def ones(operation: Operation) -> Result:
    return (value_of(1, operation.output.shape, operation.output.dtype),)


FILLING = (full, zeros, ones)
"""The rules of operators that give one number in all elements."""


@rule(Kind.creation, "arange.default", "arange.start", "arange.start_step", "prims.iota.default")
def arange(operation: Operation) -> Result:
    """Integers as an index; fractions in float64, which is closer to the true values than eager's own steps."""
    start, step = operation.arguments.get("start", 0), operation.arguments.get("step", 1)
    dtype = operation.output.dtype
    if not any(isinstance(value, float) for value in (start, step, operation.arguments.get("end"))):
        return (AsValue(Symbol("d0") * as_index(step) + as_index(start), dtype),)
    if not dtype.is_floating_point:
        raise Declined("integers between fractions")
    along = call("mul", value_of(step, (), WIDE), AsValue(Symbol("d0"), WIDE))
    return (convert(call("add", value_of(start, (), WIDE), along), dtype),)


def between(operation: Operation) -> Expr:
    """The values from `start` to `end` in equal steps, from whichever end is nearer, in float64."""
    steps = operation["steps"]
    if not operation.output.dtype.is_floating_point or not isinstance(steps, int):
        raise Declined("steps of integers")
    if operation.output.dtype is WIDE:
        raise Declined("steps in float64, whose rounding is that of eager's vectors")
    start, end = operation.value("start", WIDE), operation.value("end", WIDE)
    if steps == 1:
        return start
    position, last = AsValue(Symbol("d0"), WIDE), constant(steps - 1, WIDE)
    step = call("div", call("sub", end, start), last)
    near = call("add", start, call("mul", step, position))
    far = call("sub", end, call("mul", step, call("sub", last, position)))
    is_near = call("lt", AsValue(Symbol("d0"), torch.int64), constant(steps // 2, torch.int64))
    return call("where", is_near, near, far, dtype=WIDE)


@rule(Kind.creation, "linspace", "linspace.Tensor_Tensor", "linspace.Tensor_Scalar", "linspace.Scalar_Tensor")
def linspace(operation: Operation) -> Result:
    return (convert(between(operation), operation.output.dtype),)


@rule(Kind.creation, "logspace", "logspace.Tensor_Tensor", "logspace.Tensor_Scalar", "logspace.Scalar_Tensor")
def logspace(operation: Operation) -> Result:
    power = call("pow", constant(operation.number("base"), WIDE), between(operation))
    return (convert(power, operation.output.dtype),)


@rule(Kind.creation, "eye", "eye.m")
def eye(operation: Operation) -> Result:
    dtype = operation.output.dtype
    row, column = (AsValue(Symbol(name), torch.int64) for name in ("d0", "d1"))
    return (convert(call("eq", row, column), dtype),)


record(
    Kind.creation,
    None,
    *"empty.memory_format empty_like empty_strided new_empty new_empty_strided empty_permuted".split(),
)
