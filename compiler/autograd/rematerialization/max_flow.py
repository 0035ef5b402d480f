"""A cheapest cut of a network, by augmenting along shortest paths.

Source: E. A. Dinic, Algorithm for solution of a problem of maximum flow in a network with power estimation, 1970.

The nodes are numbers; capacities are integers, so the result is exact. A network falls into parts that touch nowhere
but in its ends. Each part is cut by itself. So the cost is that of the parts, which is near-linear where they stay
small.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

UNCUTTABLE = 1 << 60
"""The capacity of an edge that no cut may hold."""
SOURCE, SINK = 0, 1


@dataclass(slots=True)
class Network:
    """Edges with capacities between nodes 0 (the source), 1 (the sink), 2, 3, ...

    An edge and its reverse are neighbours in the lists: `edge ^ 1` is the other.
    """

    leaving: list[list[int]] = field(default_factory=lambda: [[], []])
    heads: list[int] = field(default_factory=list)
    left: list[int] = field(default_factory=list)

    def add_node(self) -> int:
        self.leaving.append([])
        return len(self.leaving) - 1

    def add_edge(self, tail: int, head: int, capacity: int) -> None:
        for start, end, amount in ((tail, head, capacity), (head, tail, 0)):
            self.leaving[start].append(len(self.heads))
            self.heads.append(end)
            self.left.append(amount)

    def source_side(self) -> set[int]:
        """The nodes on the source's side of a cheapest cut: of all such sides the smallest.

        The capacities are used up by it. Raises: ValueError where every cut holds an edge that none may.
        """
        for edge in self.leaving[SOURCE]:
            self.left[edge] = 0 if self.heads[edge] == SINK else self.left[edge]
        for part in self._parts():
            entries = [e ^ 1 for node in part for e in self.leaving[node] if e & 1 and self.heads[e] == SOURCE]
            flow = 0
            while (depths := self._depths(entries)) is not None:
                flow += self._augment(entries, depths)
                if flow >= UNCUTTABLE:
                    raise ValueError("a network has no cut without an edge that none may hold")
        return self._reached()

    # ---- parts

    def _parts(self) -> Iterator[set[int]]:
        """The nodes that hang together when the ends are taken away."""
        seen = {SOURCE, SINK}
        for first in range(2, len(self.leaving)):
            if first in seen:
                continue
            part, pending = {first}, [first]
            seen.add(first)
            while pending:
                for edge in self.leaving[pending.pop()]:
                    head = self.heads[edge]
                    if head not in seen:
                        seen.add(head)
                        part.add(head)
                        pending.append(head)
            yield part

    # ---- one part

    def _depths(self, entries: Sequence[int]) -> dict[int, int] | None:
        """How many edges with capacity left lead to each node from the source; None where the sink is out of reach."""
        depths, layer = {SOURCE: 0}, [SOURCE]
        while layer and SINK not in depths:
            following: list[int] = []
            for node in layer:
                for edge in self.leaving[node] if node != SOURCE else entries:
                    head = self.heads[edge]
                    if self.left[edge] and head not in depths:
                        depths[head] = depths[node] + 1
                        following.append(head)
            layer = following
        return depths if SINK in depths else None

    def _augment(self, entries: Sequence[int], depths: dict[int, int]) -> int:
        """Sends as much as there is room for along paths on which every edge leads one deeper; how much that was."""
        pending: dict[int, list[int]] = {}
        sent = 0
        for entry in entries:
            while (
                self.left[entry] and depths.get(self.heads[entry]) == 1 and (path := self._path(entry, depths, pending))
            ):
                amount = min(self.left[edge] for edge in path)
                for edge in path:
                    self.left[edge] -= amount
                    self.left[edge ^ 1] += amount
                sent += amount
        return sent

    def _path(self, entry: int, depths: dict[int, int], pending: dict[int, list[int]]) -> Sequence[int]:
        """A path from an entry to the sink, empty where there is none. `pending`: the edges of each node not yet found
        to lead nowhere."""
        path = [entry]
        while path:
            node = self.heads[path[-1]]
            if node == SINK:
                return path
            edges = pending.get(node)
            if edges is None:
                edges = pending[node] = [e for e in self.leaving[node] if depths.get(self.heads[e]) == depths[node] + 1]
            while edges and not self.left[edges[-1]]:
                edges.pop()
            if edges:
                path.append(edges[-1])
                continue
            path.pop()
            if path:
                pending[self.heads[path[-1]]].pop()
        return path

    def _reached(self) -> set[int]:
        reached, pending = {SOURCE}, [SOURCE]
        while pending:
            for edge in self.leaving[pending.pop()]:
                head = self.heads[edge]
                if self.left[edge] and head not in reached:
                    reached.add(head)
                    pending.append(head)
        return reached
