"""Random numbers that backward draws again instead of being given them: from the state that the generator had.

    forward      state = generator_state(); m = bernoulli(x)
    backward     now = exchange_generator_state(state); m = bernoulli(x); exchange_generator_state(now)

So they are the same numbers, and nobody else's stream is any further than it would be.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils import _pytree as pytree

from assay.compiler.autograd.rematerialization.recompute_cost import bytes_of, is_measurable
from assay.compiler.ir.graph.roles import Program, Saved
from assay.compiler.ir.graph.trace import module_of
from assay.compiler.ops.calls.generators import exchange_generator_state, generator_state

LEAST_BYTES = 1 << 14
"""Bytes of random numbers below which they are kept: the state of a generator, kept in their place, is 5 KB."""


def is_replayable(call: fx.Node) -> bool:
    """Whether a call draws enough numbers, from its device's own generator and of no other kind of call."""
    target = call.target
    if not isinstance(target, torch._ops.OpOverload) or target.namespace != "aten":
        return False
    if any(argument.name == "generator" and call.kwargs.get("generator") for argument in target._schema.arguments):
        return False
    drawn = [value for value in pytree.tree_leaves(call.meta.get("val")) if isinstance(value, torch.Tensor)]
    if not drawn or any(value.device.type not in ("cpu", "cuda") for value in drawn):
        return False
    parts = [call, *call.users]
    return sum(bytes_of(part.meta["val"]) for part in parts if is_measurable(part)) >= LEAST_BYTES


def state_name(call: fx.Node) -> str:
    """Under which name forward keeps the state that a call found."""
    return f"{call.name}_state"


def keep_states(forward: Program, names: Collection[str]) -> tuple[Program, list[fx.Node]]:
    """Forward, which also returns the states that the calls of these names find; and these, in its graph."""
    if not names:
        return forward, []
    graph = forward.module.graph
    states = [_state_before(node) for node in graph.nodes if node.name in names]
    output = next(iter(reversed(graph.nodes)))
    output.args = ([*output.args[0], *states],)
    roles = (*forward.signature.outputs, *(Saved(node.name) for node in states))
    return Program(module_of(forward.module, graph), replace(forward.signature, outputs=roles)), states


def draw_again(program: Program, states: Sequence[fx.Node], after: int) -> Program:
    """A program that takes states of generators behind its first `after` inputs; the calls that drew from them do so
    once more. `states` are the nodes of forward."""
    if not states:
        return program
    graph = program.module.graph
    nodes = {state_name(node): node for node in graph.nodes if node.op == "call_function"}
    following = next(node for position, node in enumerate(graph.nodes) if position >= after)
    for state in states:
        with graph.inserting_before(following):
            given = graph.placeholder(state.name)
        given.meta["val"] = state.meta["val"]
        _bracket(nodes[state.name], given)
    roles = program.signature.inputs
    inputs = (*roles[:after], *(Saved(state.name) for state in states), *roles[after:])
    return Program(module_of(program.module, graph), replace(program.signature, inputs=inputs))


def _state_before(call: fx.Node) -> fx.Node:
    with call.graph.inserting_before(call):
        state = call.graph.create_node("call_function", generator_state, (_device(call),), name=state_name(call))
    state.meta["val"] = _fake_state(call)
    return state


def _bracket(call: fx.Node, state: fx.Node) -> None:
    """The call between two exchanges of the generator's state."""
    graph, device = call.graph, _device(call)
    with graph.inserting_before(call):
        now = graph.call_function(exchange_generator_state, (state, device))
    with graph.inserting_after(call):
        back = graph.call_function(exchange_generator_state, (now, device))
    now.meta["val"] = back.meta["val"] = state.meta["val"]


def _device(call: fx.Node) -> torch.device:
    return _drawn(call).device


def _drawn(call: fx.Node) -> FakeTensor:
    return next(value for value in pytree.tree_leaves(call.meta["val"]) if isinstance(value, FakeTensor))


def _fake_state(call: fx.Node) -> torch.Tensor:
    value = _drawn(call)
    count = generator_state(value.device).numel()
    with value.fake_mode:
        return torch.empty(count, dtype=torch.uint8)
