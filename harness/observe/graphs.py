"""Which autograd graphs of a run are used up, and which results are computed from which, read off eager's own graph.

A compiled call is one node where eager has many. That shows in what a program may do with a graph afterwards. A driver
that wants to steer around it has to know where one call's nodes begin and end.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

Node = Any


@dataclass(slots=True)
class Graphs:
    """The nodes that each call made, among those that a living tensor has, and the nodes that a backward has freed.

    Nodes are kept alive here, because their identity is that of their Python object only while one exists.
    """

    calls: list[set[Node]] = field(default_factory=list)
    freed: set[Node] = field(default_factory=set)
    _known: set[Node] = field(default_factory=set)

    def note_before(self, tensors: Mapping[str, Tensor]) -> None:
        """Remembers the nodes that are there before a call."""
        self._known = nodes_of(tensors.values())

    def note_call(self, tensors: Mapping[str, Tensor]) -> None:
        """The nodes that are new are the call's."""
        self.calls.append(nodes_of(tensors.values()) - self._known)

    def note_backward(self, ends: Iterable[Tensor]) -> None:
        """A backward that keeps nothing: it frees what saved something, and a call of which it reaches any node."""
        reached = reachable(nodes_of(ends))
        self.freed |= {node for node in reached if saves(node)}
        for nodes in self.calls:
            if nodes & reached:
                self.freed |= nodes

    def is_freed(self, end: Tensor) -> bool:
        return bool(reachable({node_of(end), *self._siblings(end)}) & self.freed)

    def is_made_by_a_call(self, tensor: Tensor) -> bool:
        """Whether a call returned it, or wrote it where gradients are recorded."""
        return any(node_of(tensor) in nodes for nodes in self.calls)

    def leads_to(self, end: Tensor, tensor: Tensor) -> bool:
        """Whether a gradient flows from one tensor to the other."""
        reached = reachable({node_of(end)})
        return node_of(tensor) in reached or any(getattr(node, "variable", None) is tensor for node in reached)

    def feeds_its_siblings(self, end: Tensor) -> bool:
        """Whether another result of the same call was computed from this one."""
        return node_of(end) in reachable(self._siblings(end))

    def has_siblings(self, end: Tensor) -> bool:
        """Whether the same call returned another result with a gradient."""
        return bool(self._siblings(end))

    def _siblings(self, end: Tensor) -> set[Node]:
        """The nodes of the other results of the call that a result comes from."""
        node = node_of(end)
        return {other for nodes in self.calls if node in nodes for other in nodes if other is not node}


def nodes_of(tensors: Iterable[Tensor]) -> set[Node]:
    nodes = {node_of(tensor) for tensor in tensors if tensor.requires_grad}
    return nodes - {None}


def node_of(tensor: Tensor) -> Node:
    """What autograd knows a tensor to come from; nothing where it refuses to look at a view."""
    try:
        return tensor.grad_fn
    except RuntimeError:
        return None


def reachable(start: Iterable[Node]) -> set[Node]:
    """The nodes from which gradients flow on, the starting ones too."""
    seen: set[Node] = set()
    pending = list(start)
    while pending:
        node = pending.pop()
        if node is not None and node not in seen:
            seen.add(node)
            pending.extend(following for following, _ in node.next_functions)
    return seen


def saves(node: Node) -> bool:
    """Whether a node of this kind keeps tensors that a backward frees."""
    return any(name.startswith("_raw_saved_") or name == "saved_tensors" for name in dir(node))
