"""`noting_zeros`: the zeros that formulas of backward give, each with the results whose gradients lead to its formula.

y, z = x.floor(), x * w      dx = zeros + dz * w      the zeros are noted with y

Nothing computes them from a gradient, so that nothing else in the graph tells which one they follow from. Where that
one is missing, eager does not add them, and the sign of a zero in the other summand stays.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import fx
from torch.autograd.graph import Node

from assay.compiler.ir.graph.constant_zeros import ZEROS_OF, is_zeros
from assay.compiler.ir.graph.roles import OutputRole, Tangent


@contextmanager
def noting_zeros(graph: fx.Graph, values: Mapping[OutputRole, torch.Tensor]) -> Iterator[None]:
    """While it is open, zeros that a node of autograd records are noted with the tangents that lead to the node.

    Cost: one visit a node; nothing where there is one value, without which there is no backward.
    """
    if len(values) < 2:
        yield
        return
    noted = _Noted(graph)
    tangents = [Tangent(role) for role in values]
    hooks = [node.register_hook(noted.hook(tangents, mask)) for node, mask in _masks(values).items()]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


class _Noted:
    def __init__(self, graph: fx.Graph) -> None:
        self._graph, self._end = graph, graph._root.prev

    def hook(self, tangents: list[Tangent], mask: int) -> Callable[..., None]:
        def note(*_: object) -> None:
            node, self._end = self._end.next, self._graph._root.prev
            while node.op != "root":
                if is_zeros(node):
                    node.meta[ZEROS_OF] = frozenset(each for bit, each in enumerate(tangents) if mask >> bit & 1)
                node = node.next

        return note


def _masks(values: Mapping[OutputRole, torch.Tensor]) -> dict[Node, int]:
    """For each node of autograd the values behind which it is: a bit for each, in their order."""
    roots = [value.grad_fn for value in values.values()]
    masks: dict[Node, int] = {}
    for bit, root in enumerate(roots):
        if root is not None:
            masks[root] = masks.get(root, 0) | 1 << bit
    for node in reversed(_ordered(list(masks))):
        for parent, _ in node.next_functions:
            if parent is not None:
                masks[parent] = masks.get(parent, 0) | masks[node]
    return masks


def _ordered(roots: list[Node]) -> list[Node]:
    """The nodes behind some, each after all that it leads to; without recursion."""
    found: list[Node] = []
    seen: set[Node] = set()
    pending = [(root, False) for root in roots]
    while pending:
        node, is_left = pending.pop()
        if is_left:
            found.append(node)
        elif node not in seen:
            seen.add(node)
            pending.append((node, True))
            pending.extend((parent, False) for parent, _ in node.next_functions if parent is not None)
    return found
