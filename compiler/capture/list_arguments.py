"""Graphs that take lists of tensors, as those of torch's compiled autograd do: the same graph, given what is in them.

    graph(inputs, size), inputs = [a, b]     ->     graph(a, b, size)

A list that the caller gives away (`steal_arg`) is emptied, so that what only it holds is freed at its last use.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence

from torch import fx

from assay.compiler.errors import Unsupported

Spread = Callable[[Sequence[object]], list[object]]


def has_lists(example_inputs: Sequence[object]) -> bool:
    return any(isinstance(value, (list, tuple)) for value in example_inputs)


def without_lists(gm: fx.GraphModule, example_inputs: Sequence[object]) -> tuple[fx.GraphModule, Spread]:
    """The graph over flat inputs, in a module of its own, and what makes them of the arguments of a call.

    Raises: Unsupported for lists within lists.
    """
    graph, copies = fx.Graph(), dict[fx.Node, object]()
    placeholders = [node for node in gm.graph.nodes if node.op == "placeholder"]
    given_away = [node.meta.get("steal_arg", False) for node in placeholders]
    for node, value in zip(placeholders, example_inputs, strict=True):
        if not isinstance(value, (list, tuple)):
            copies[node] = graph.node_copy(node)
            continue
        if has_lists(value):
            raise Unsupported(f"input {node.name} is a list of lists")
        copies[node] = [graph.placeholder(f"{node.name}_{index}") for index, _ in enumerate(value)]

    def copied(node: fx.Node) -> object:
        return copies[node]

    for node in gm.graph.nodes:
        if node in copies:
            continue
        listed = copies.get(node.args[0]) if node.target is operator.getitem else None
        if isinstance(listed, list):
            copies[node] = listed[node.args[1]]
            continue
        args, kwargs = fx.node.map_arg((node.args, node.kwargs), copied)  # type: ignore[arg-type]
        made = graph.create_node(node.op, node.target, args, kwargs, node.name, node.type)
        made.meta = dict(node.meta)
        copies[node] = made

    def spread(args: Sequence[object]) -> list[object]:
        flat: list[object] = []
        for value, is_given_away in zip(args, given_away, strict=True):
            flat += value if isinstance(value, (list, tuple)) else [value]
            if is_given_away and isinstance(value, list):
                value.clear()
        return flat

    return fx.GraphModule(gm, graph), spread
