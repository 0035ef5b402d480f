"""Backends that are right, and that no run may accuse."""

from __future__ import annotations

import copy
from collections.abc import Sequence

from torch import fx
from torch._ops import OpOverload
from torch.utils._python_dispatch import _disable_current_modes

from assay.compiler.entry.dynamo import assay
from assay.harness.selftest.wrong_backends.exact import edited
from assay.harness.selftest.wrong_backends.registry import Run, correct
from assay.harness.selftest.wrong_backends.rounded_once import RoundedOnce


@correct
def right(graph: fx.GraphModule, example_inputs: Sequence[object]) -> Run:
    """Dynamo's graph, run by eager."""
    return graph.forward


@correct
def interprets(graph: fx.GraphModule, example_inputs: Sequence[object]) -> Run:
    """Dynamo's graph, node by node in an interpreter of each call's own: one that is used again holds its results."""
    return lambda *args: fx.Interpreter(graph).run(*args)  # type: ignore[no-any-return]


@correct
def copies_the_graph(graph: fx.GraphModule, example_inputs: Sequence[object]) -> Run:
    """A copy of Dynamo's graph, compiled to Python anew."""
    return edited(graph, lambda node: None).forward  # type: ignore[no-any-return]


@correct
def records_ahead_of_time(graph: fx.GraphModule, example_inputs: Sequence[object]) -> Run:
    """Our own compiler without generated code: forward and backward recorded ahead of time, run by ATen. Torch's
    `aot_eager` is no control: what eager leaves None it gives a gradient of zeros, once one result alone is used."""
    return assay(graph, example_inputs, options={"target": "aten"})  # type: ignore[no-any-return]


@correct
def copies_the_module(graph: fx.GraphModule, example_inputs: Sequence[object]) -> Run:
    """A shallow copy of the graph's module."""
    return copy.copy(graph).forward  # type: ignore[no-any-return]


@correct
def rounds_once(graph: fx.GraphModule, example_inputs: Sequence[object]) -> Run:
    """Dynamo's graph by eager, each operator computed in float64 and rounded once: never eager's last bits."""
    forward = edited(graph, call_outside_if_it_writes).forward

    def run(*args: object) -> Sequence[object]:
        with RoundedOnce():
            return forward(*args)  # type: ignore[no-any-return]

    return run


def call_outside_if_it_writes(node: fx.Node) -> None:
    """An operator of the user's that writes is called outside of every mode: behind one, its own writes raise no
    version."""
    operator = node.target
    if isinstance(operator, OpOverload) and operator.namespace != "aten" and operator._schema.is_mutable:
        node.target, node.args = called_outside, (operator, *node.args)


def called_outside(operator: OpOverload, *args: object, **kwargs: object) -> object:
    """What an operator gives while no dispatch mode is on."""
    with _disable_current_modes():
        return operator(*args, **kwargs)
