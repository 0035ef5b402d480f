"""`materialize`: a program whose graph returns every result itself, instead of a recipe for it.

    returns (base_0, new_1)                           returns (new_1, view, new_1)
    results View(Base(0), view), Input(Buffer(1))     outputs Mutation(Buffer(1)), UserOutput(0), UserOutput(1)

A compiled call replays views after the graph, so that they alias as eager's do. A graph that is given away has nobody
to replay them: its results must be among its outputs.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, cast

import torch
from torch import fx
from torch._dispatch.python import enable_python_dispatcher
from torch._subclasses.fake_tensor import FakeTensor

from assay.compiler.errors import Unsupported
from assay.compiler.ir.graph.float_division import divide_as_python
from assay.compiler.ir.graph.roles import (
    Constant,
    Gradient,
    Input,
    Mutation,
    OutputRole,
    Program,
    Result,
    Same,
    Shown,
    Signature,
    Size,
    UserOutput,
    View,
    ViewStep,
)

Value = fx.Node | int | float | bool | str | None


def materialize(program: Program) -> Program:
    """Outputs: the mutations in the order of the inputs, the results, the gradients. Changes the program's graph.

    Raises: Unsupported for an output that a graph alone cannot return.
    """
    signature = program.signature
    divide_as_python(program.module.graph)
    values: dict[object, Value] = dict(zip(signature.inputs, program.placeholders, strict=True))
    values.update(zip(signature.outputs, program.returned, strict=True))
    mutations = [role for role in signature.outputs if isinstance(role, Mutation)]
    mutations.sort(key=lambda role: role.of.index)
    values.update({role.of: values[role] for role in mutations})
    for index, result in enumerate(signature.results):
        shown = Shown(UserOutput(index))
        values[UserOutput(index)] = values[shown] if shown in values else _value(program, values, result)
    results = [UserOutput(index) for index, _ in enumerate(signature.results)]
    gradients = [role for role in signature.outputs if isinstance(role, Gradient)]
    outputs: tuple[OutputRole, ...] = (*mutations, *results, *gradients)
    set_returned(program.module, [values[role] for role in outputs])
    return Program(program.module, Signature(signature.inputs, outputs, tuple(results), signature.differentiable))


def set_returned(module: fx.GraphModule, values: Sequence[Value]) -> None:
    """Makes the graph return `values`, as one flat tuple."""
    output = next(iter(reversed(module.graph.nodes)))
    output.args = (tuple(values),)


def _value(program: Program, values: dict[object, Value], result: Result) -> Value:
    match result:
        case UserOutput() | Size():
            return values[result]
        case Same(first):
            return values[UserOutput(first)]
        case Input(of):
            return values[of]
        case View(of, how):
            node = cast(fx.Node, values[of])
            for step in how:
                node = _applied(program.module, node, step, values)
            return node
        case Constant(value):
            return _constant(program.module, value) if isinstance(value, torch.Tensor) else cast(Value, value)
    raise Unsupported(f"a graph alone cannot return {result}")


def _applied(module: fx.GraphModule, node: fx.Node, step: ViewStep, values: dict[object, Value]) -> fx.Node:
    """One step of a view's chain, as a call in the graph."""
    arguments = _replaced(step.arguments, values)
    target = torch.ops.aten.detach.default if step.target == "data" else step.target
    call = _call(module, target, (node, *arguments), target._schema.name.split("::")[1])
    return call if step.item is None else _call(module, operator.getitem, (call, step.item), "getitem")


def _replaced(argument: Any, values: dict[object, Value]) -> Any:
    if isinstance(argument, Size):
        return values[argument]
    if isinstance(argument, (list, tuple)):
        return type(argument)(_replaced(item, values) for item in argument)
    return argument


def _call(module: fx.GraphModule, target: Any, args: tuple[Any, ...], name: str) -> fx.Node:
    graph = module.graph
    with graph.inserting_before(next(iter(reversed(graph.nodes)))):
        node = graph.create_node("call_function", target, args, {}, name)
    values: Any = fx.map_arg(args, lambda each: each.meta["val"])
    with _mode_of(values[0]):
        node.meta["val"] = target(*values)
    return node


@contextmanager
def _mode_of(value: object) -> Iterator[None]:
    """Where calls on a fake tensor give fake tensors, symbolic sizes included."""
    if not isinstance(value, FakeTensor):
        yield
        return
    with value.fake_mode, enable_python_dispatcher():
        yield


def _constant(module: fx.GraphModule, value: torch.Tensor) -> fx.Node:
    """A real tensor that the program holds, as an attribute of the module."""
    name = f"_result_constant{sum(node.op == 'get_attr' for node in module.graph.nodes)}"
    setattr(module, name, value)
    with module.graph.inserting_before(next(iter(reversed(module.graph.nodes)))):
        node = module.graph.get_attr(name)
    node.meta["val"] = value
    return node
