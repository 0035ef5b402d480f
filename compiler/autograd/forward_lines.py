"""What backward's nodes know of forward: the line of the user's, and the module, of the call that each differentiates.

y = x.sin()     # model.py:12, in encoder     forward: sin          stack_trace, nn_module_stack
                                              backward: cos, mul    stack_trace, fwd_nn_module_stack
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from torch import fx
from torch.autograd.graph import Node

PLACES = {
    "stack_trace": "stack_trace",
    "nn_module_stack": "fwd_nn_module_stack",
    "source_fn_stack": "fwd_source_fn_stack",
}
"""What a node of forward knows of where it came from, and what a node of backward calls that."""


@contextmanager
def lines_of_forward(graph: fx.Graph, behind: Iterable[Node]) -> Iterator[None]:
    """While it is open, calls that the nodes of autograd record get what is known of those that they differentiate.

    What is recorded between two of them, the sum of two gradients, is counted to the later one. Torch gives nodes of
    forward the numbers of the nodes of autograd that were made with them (`seq_nr`), where it keeps places at all.
    """
    known: dict[int, dict[str, object]] = {}
    for node in graph.nodes:
        if "seq_nr" in node.meta and "stack_trace" in node.meta:
            said = {of: node.meta[name] for name, of in PLACES.items() if name in node.meta}
            known.setdefault(node.meta["seq_nr"], said)
    if not known:
        yield
        return
    marker = _Marker(graph)
    numbered = [(node, known.get(node._sequence_nr(), {})) for node in behind]
    hooks = [node.register_hook(marker.hook(said)) for node, said in numbered]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()
        marker.mark(marker.last)


class _Marker:
    """Gives the nodes that were recorded since it last did so what it is told."""

    def __init__(self, graph: fx.Graph) -> None:
        self._graph = graph
        self._end = self._now()
        self.last: dict[str, object] = {}

    def _now(self) -> fx.Node:
        """The last node of the graph; its root where there is none."""
        return self._graph._root.prev

    def hook(self, said: dict[str, object]) -> Callable[..., None]:
        def mark(*_: object) -> None:
            self.mark(said)

        return mark

    def mark(self, said: dict[str, object]) -> None:
        node, self._end, self.last = self._end.next, self._now(), said
        while node.op != "root":
            if node.op in ("call_function", "get_attr"):
                node.meta = {**said, **node.meta}
            node = node.next
