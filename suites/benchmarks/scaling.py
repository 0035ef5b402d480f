"""Graphs that grow: what their compile time must be linear in is the number of their nodes. `assay bench scaling`."""

from __future__ import annotations

import torch
from torch import fx

from assay.harness.bench.compile_time.scaling import Growing, Inputs

SHAPE = (64, 64)
STATE, BATCH = 16, 8


def _module(graph: fx.Graph, result: fx.Node) -> fx.GraphModule:
    graph.output((result,))
    return fx.GraphModule({}, graph)


def chain(nodes: int) -> tuple[fx.GraphModule, Inputs]:
    """Pointwise operators one after the other, each with a number of its own, so that no two parts are alike."""
    graph = fx.Graph()
    x = value = graph.placeholder("x")
    functions = (torch.sin, torch.tanh, torch.sigmoid, torch.cos)
    for step in range(nodes // 3):
        value = graph.call_function(torch.mul, (value, 1.0 + step / nodes))
        value = graph.call_function(torch.add, (value, x))
        value = graph.call_function(functions[step % 4], (value,))
    return _module(graph, value), (torch.randn(SHAPE),)


def recurrence(steps: int) -> tuple[fx.GraphModule, Inputs]:
    """A recurrent network, unrolled: each step reads its own part of one input and one product with the weight."""
    graph = fx.Graph()
    inputs, weight, state = (graph.placeholder(name) for name in ("inputs", "weight", "state"))
    for step in range(steps):
        own = graph.call_function(torch.select, (inputs, 0, step))
        product = graph.call_function(torch.matmul, (state, weight))
        state = graph.call_function(torch.tanh, (graph.call_function(torch.add, (own, product)),))
    given = (torch.randn(steps, BATCH, STATE), torch.randn(STATE, STATE) / STATE, torch.randn(BATCH, STATE))
    return _module(graph, state), given


def fibonacci(nodes: int) -> tuple[fx.GraphModule, Inputs]:
    """Each value is used by the next two: inlined everywhere, the last would have exponentially many terms."""
    graph = fx.Graph()
    one, two = graph.placeholder("x"), graph.placeholder("y")
    for step in range(nodes):
        one, two = two, graph.call_function((torch.add, torch.sub)[step % 2], (one, two))
    return _module(graph, two), (torch.randn(SHAPE), torch.randn(SHAPE))


PROGRAMS = (
    Growing("chain", chain, (1250, 2500, 5000, 10000)),
    Growing("recurrence", recurrence, (190, 375, 750, 1500)),
    Growing("fibonacci", fibonacci, (1250, 2500, 5000, 10000)),
)
