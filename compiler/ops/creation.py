"""Creation: tensors that depend on sizes and numbers only."""

from __future__ import annotations

from compiler.ir.index import Symbol, as_index
from compiler.ir.loops import AsValue
from compiler.ops.registry import Declined, Kind, Operation, Result, record, rule, value_of


@rule(Kind.creation, "full", "full_like", "new_full", "fill.Scalar", "fill.Tensor")
def full(operation: Operation) -> Result:
    name = "value" if "value" in operation.arguments else "fill_value"
    return (operation.value(name, operation.output.dtype),)


@rule(Kind.creation, "scalar_tensor")
def scalar_tensor(operation: Operation) -> Result:
    return (operation.value("s", operation.output.dtype),)


@rule(Kind.creation, "zeros", "zeros_like", "new_zeros")
def zeros(operation: Operation) -> Result:
    return (value_of(0, operation.output.shape, operation.output.dtype),)


@rule(Kind.creation, "ones", "ones_like", "new_ones")
def ones(operation: Operation) -> Result:
    return (value_of(1, operation.output.shape, operation.output.dtype),)


@rule(Kind.creation, "arange.default", "arange.start", "arange.start_step", "prims.iota.default")
def arange(operation: Operation) -> Result:
    start, step = operation.arguments.get("start", 0), operation.arguments.get("step", 1)
    if isinstance(start, float) or isinstance(step, float):
        raise Declined("fractional range")
    return (AsValue(Symbol("d0") * as_index(step) + as_index(start), operation.output.dtype),)


record(
    Kind.creation,
    None,
    *"empty.memory_format empty_like empty_strided new_empty new_empty_strided empty_permuted linspace eye".split(),
)
