"""The order in which eager runs the nodes of a backward.

The engine hands nodes over in an order of its own, last in first out. Eager runs the youngest node first of those that
are ready: hooks of two branches are called so, and gradients that meet are added so.

    Roots.places(names)               each node's place in eager's order, by its number in the engine's
    in_eager_order(backward, places)  the steps in that order
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from torch.autograd.graph import Node

from assay.compiler.ir.graph.backward.engine_steps import Accumulated, Backward, Made, Step, renamed


@dataclass(frozen=True, slots=True)
class Roots:
    """The nodes that a backward begins at, in the order of its outputs; `ends` are the nodes of the inputs that it is
    for, or None where it is for all leaves."""

    starts: tuple[Node, ...]
    ends: tuple[Node, ...] | None

    def places(self, names: Sequence[str]) -> Mapping[int, int] | None:
        """For each node by its number in the engine's order, its place in eager's; None where the engine's order is not
        the one that is expected."""
        edges = _edges(self)
        walked = list(_walk(self.starts, edges))
        if [node.name() for node in walked] != list(names)[1:]:
            return None
        numbers = {node: number for number, node in enumerate(walked, 1)}
        return {0: 0} | {numbers[node]: place for place, node in enumerate(_eager(self.starts, edges), 1)}

    def numbers(self) -> dict[Node, int]:
        """Each node's number in the engine's order."""
        return {node: number for number, node in enumerate(_walk(self.starts, _edges(self)), 1)}


Edges = Mapping[Node, Sequence[Node]]


def _edges(roots: Roots) -> dict[Node, list[Node]]:
    """For each node that runs, the nodes that its gradients go to, an edge for each."""
    found: dict[Node, list[Node]] = {}
    pending = list(roots.starts)
    while pending:
        node = pending.pop()
        if node not in found:
            found[node] = [each for each, _ in node.next_functions if each is not None]
            pending.extend(found[node])
    if roots.ends is None:
        return found
    needed = _needed(roots, found)
    return {node: [each for each in edges if each in needed] for node, edges in found.items() if node in needed}


def _needed(roots: Roots, edges: Edges) -> set[Node]:
    """The nodes from which one leads to the inputs that the backward is for."""
    needed: set[Node] = set(roots.ends or ())
    pending = [(node, False) for node in roots.starts]
    seen: set[Node] = set()
    while pending:
        node, is_left = pending.pop()
        if is_left:
            if any(each in needed for each in edges[node]):
                needed.add(node)
        elif node not in seen:
            seen.add(node)
            pending.append((node, True))
            pending.extend((each, False) for each in edges[node])
    return needed


def _waiting_for(starts: Sequence[Node], edges: Edges) -> dict[Node, int]:
    counts: dict[Node, int] = {}
    for following in (starts, *edges.values()):
        for node in following:
            counts[node] = counts.get(node, 0) + 1
    return counts


def _released(following: Sequence[Node], waiting: dict[Node, int]) -> Iterator[Node]:
    """The nodes that are ready now that one more gradient has come to each of these."""
    for node in following:
        if node in waiting:
            waiting[node] -= 1
            if not waiting[node]:
                yield node


def _walk(starts: Sequence[Node], edges: Edges) -> Iterator[Node]:
    waiting = _waiting_for(starts, edges)
    pending = list(_released(starts, waiting))
    while pending:
        node = pending.pop()
        yield node
        pending.extend(_released(edges.get(node, ()), waiting))


def _eager(starts: Sequence[Node], edges: Edges) -> Iterator[Node]:
    waiting = _waiting_for(starts, edges)
    ready: list[tuple[int, Node]] = []
    for node in _released(starts, waiting):
        push(ready, (node._sequence_nr(), node))
    while ready:
        _, node = pop(ready)
        yield node
        for each in _released(edges.get(node, ()), waiting):
            push(ready, (each._sequence_nr(), each))


def push(heap: list[tuple[int, Node]], item: tuple[int, Node]) -> None:
    """Adds an item as the C++ library's heaps do: of equal ones the library's order is eager's."""
    heap.append(item)
    _rise(heap, len(heap) - 1, item)


def pop(heap: list[tuple[int, Node]]) -> tuple[int, Node]:
    """Takes the item of the highest number, as the C++ library does: the hole sinks to the end, the last item rises."""
    top, last = heap[0], heap.pop()
    if not heap:
        return top
    hole, count = 0, len(heap)
    while (child := 2 * hole + 2) < count:
        if heap[child][0] < heap[child - 1][0]:
            child -= 1
        heap[hole] = heap[child]
        hole = child
    if child == count:
        heap[hole] = heap[child - 1]
        hole = child - 1
    _rise(heap, hole, last)
    return top


def _rise(heap: list[tuple[int, Node]], hole: int, item: tuple[int, Node]) -> None:
    while hole and heap[(hole - 1) // 2][0] < item[0]:
        heap[hole] = heap[(hole - 1) // 2]
        hole = (hole - 1) // 2
    heap[hole] = item


def in_eager_order(backward: Backward, places: Mapping[int, int]) -> Backward:
    """The same backward, its nodes in eager's order; gradients that meet are added in the order in which they come."""
    steps = backward.steps
    sums = {position for position, step in enumerate(steps) if step.kind == "add"}
    order = sorted((n for n in range(len(steps)) if n not in sums), key=lambda n: (places[steps[n].node], n))
    return _Rewriting(backward, _parts(steps, sums)).run(order)


def _parts(steps: Sequence[Step], sums: set[int]) -> dict[int, list[Any]]:
    """For each addition whose sum is read by something else than another addition, the gradients that it is of."""
    parts: dict[int, list[Any]] = {}
    inner: set[int] = set()
    for position in sorted(sums):
        found: list[Any] = []
        for value in steps[position].arguments:
            is_sum = isinstance(value, Made) and value.step in sums
            found += parts[value.step] if is_sum else [value]
            inner |= {value.step} if is_sum else set()
        parts[position] = found
    return {position: found for position, found in parts.items() if position not in inner}


class _Rewriting:
    """The steps in another order. `places` are where those of the old list stand in the new one."""

    def __init__(self, backward: Backward, parts: Mapping[int, list[Any]]) -> None:
        self.backward, self.parts = backward, parts
        self.made: list[Step] = []
        self.places = [0] * len(backward.steps)
        self.sums: dict[int, Made] = {}
        self.due: dict[int, list[tuple[int, int]]] = {}
        for total, values in parts.items():
            for value in values:
                if isinstance(value, Made):
                    self.due.setdefault(value.step, []).append((value.item, total))

    def run(self, order: Sequence[int]) -> Backward:
        """Each addition is made as soon as its gradients are there."""
        steps = self.backward.steps
        for position in order:
            self.made.append(steps[position].on(self._moved(steps[position].arguments)))
            self.places[position] = len(self.made) - 1
            for item, total in sorted(self.due.get(position, ())):
                self._add(total, steps[total], Made(self.places[position], item))
        return replace(self.backward, steps=tuple(self.made), outputs=self._moved(self.backward.outputs))

    def _add(self, total: int, step: Step, gradient: Made) -> None:
        before = self.sums.get(total)
        self.sums[total] = gradient
        if before is not None:
            self.made.append(step.on((before, gradient)))
            self.sums[total] = Made(len(self.made) - 1, 0)

    def _moved(self, structure: Any) -> Any:
        def read(value: Any) -> Any:
            if isinstance(value, Made):
                return self.sums.get(value.step) or Made(self.places[value.step], value.item)
            return Accumulated(self.places[value.step]) if isinstance(value, Accumulated) else value

        return renamed(structure, read)
