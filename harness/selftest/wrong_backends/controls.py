"""Backends that are right, and that no run may accuse."""

from __future__ import annotations

import copy
from collections.abc import Sequence

import torch._dynamo
from torch import fx

from harness.selftest.wrong_backends.exact import edited
from harness.selftest.wrong_backends.registry import Run, correct


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
def runs_ahead_of_time(graph: fx.GraphModule, example_inputs: Sequence[object]) -> Run:
    """Torch's own `aot_eager`: forward and backward traced ahead of time, run by eager."""
    return torch._dynamo.lookup_backend("aot_eager")(graph, example_inputs)  # type: ignore[no-any-return, arg-type]


@correct
def copies_the_module(graph: fx.GraphModule, example_inputs: Sequence[object]) -> Run:
    """A shallow copy of the graph's module."""
    return copy.copy(graph).forward  # type: ignore[no-any-return]
