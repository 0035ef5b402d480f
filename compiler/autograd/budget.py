"""`budget_split`: the fastest split whose peak of memory is within a share of what the cheapest cut takes.

    memory_budget = 1      the cheapest cut, as it is without a budget
    memory_budget = 0.5    at most half of its peak; or, where no split reaches that, the least peak that is found

Splits to choose from are cut under rising prices of memory, with calls of any kind computed again, and with the forward
in so many segments: what crosses from one to the next is kept, so that backward computes one segment again at a time
and not everything at once. Each is priced by walking through its forward and backward. A lower budget chooses among
fewer of the same splits, the fastest of them, so the peak never rises when the budget falls.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

import torch
from torch import fx

from compiler.autograd.cost import bytes_of, is_fused, is_measurable, work
from compiler.autograd.partition import Split, demands, halves, late, viewed
from compiler.autograd.rematerialize import Terms, asked_for, cheapest_split, choice_under, split_under
from compiler.ir.decisions import Reason
from compiler.ir.roles import Program
from compiler.ir.trace import producer

PRICES = (2, 4, 8, 16, 64, 1 << 12)
"""The last is that of a byte for which anything is computed again."""
SEGMENTS = (1, 2, 3, 4, 6, 8, 12, 16, 24)
"""Into how many segments the forward is cut; a number beyond its values is left out."""
SHARES = tuple(eighth / 8 for eighth in range(1, 8))
"""Of the best splits there are others in which only the first segments pay the price of memory."""


@dataclass(frozen=True, slots=True)
class Priced:
    """A split with what it is estimated to take: bytes at the peak of a step beyond inputs, picoseconds made again."""

    terms: Terms
    peak_bytes: int
    again_ps: int


def budget_split(joint: Program, budget: float) -> Split:
    """The fastest split within the budget, 0 to 1. Cost: 100 cheapest cuts, where it is below 1."""
    if budget >= 1:
        return cheapest_split(joint)
    return split_under(joint, within(candidates(joint), budget).terms)


def within(found: Sequence[Priced], budget: float) -> Priced:
    """The fastest of the candidates, of which the first is the cheapest cut, that keeps to the budget."""
    most, least = found[0].peak_bytes, min(one.peak_bytes for one in found)
    allowed = max(least, budget * most)
    fitting = [one for one in found if one.peak_bytes <= allowed]
    return min(fitting, key=lambda one: (one.again_ps, one.peak_bytes))


def candidates(joint: Program) -> list[Priced]:
    """The cheapest cut, then all others. They do not depend on the budget."""
    walk = _Walk(joint)
    borders = _Borders(joint)
    asked = asked_for(joint)
    found = [walk.priced(asked)]
    for count in SEGMENTS:
        kept = borders.crossing(count)
        if kept is not None:
            terms = replace(asked, is_thorough=True, kept={**kept, **asked.kept})
            found += [walk.priced(replace(terms, price=price)) for price in PRICES]
    for one in _best(found):
        if one.terms is not asked:
            shared = [replace(one.terms, cheap=borders.after(share)) for share in SHARES]
            found += [walk.priced(terms) for terms in shared]
    return found


def _best(found: Sequence[Priced]) -> list[Priced]:
    """Those that no other is both smaller and faster than."""
    best: list[Priced] = []
    for one in sorted(found, key=lambda one: (one.again_ps, one.peak_bytes)):
        if not best or one.peak_bytes < best[-1].peak_bytes:
            best.append(one)
    return best


class _Borders:
    """Where a forward can be cut into segments: between two of its calls, at the cost of the values that cross."""

    def __init__(self, joint: Program) -> None:
        before, wanted = demands(joint)
        self.order = [node for node in joint.module.graph.nodes if node in before and node.op == "call_function"]
        self.place = {node: index for index, node in enumerate(self.order)}
        self.last = self._last()
        self.weight = [bytes_of(n.meta["val"]) if n in wanted and is_measurable(n) else 0 for n in self.order]
        changes = [0] * (len(self.order) + 1)
        for node in self.order:
            if viewed(node) is node and is_measurable(node):
                changes[self.place[node] + 1] += bytes_of(node.meta["val"])
                changes[min(self.last[node] + 1, len(self.order))] -= bytes_of(node.meta["val"])
        self.cost = list(accumulate(changes))

    def _last(self) -> dict[fx.Node, int]:
        """The place of the last call of forward that reads a value or a view of it."""
        place = self.place
        last = {node: max((place[u] for u in node.users if u in place), default=place[node]) for node in self.order}
        for node in reversed(self.order):
            root = viewed(node)
            if root in last:
                last[root] = max(last[root], last[node])
        return last

    def crossing(self, count: int) -> dict[fx.Node, Reason] | None:
        """The values that cross between `count` segments that keep about as much each; None where there are too few."""
        borders = self._borders(count)
        if len(borders) < count - 1:
            return None
        roots = [node for node in self.order if viewed(node) is node]
        crossed = (n for n in roots if any(self.place[n] < border <= self.last[n] for border in borders))
        return dict.fromkeys(crossed, Reason.segment)

    def after(self, share: float) -> frozenset[fx.Node]:
        """What stands behind that share of what forward keeps."""
        reached, total, found = 0, sum(self.weight), []
        for node, weight in zip(self.order, self.weight, strict=True):
            reached += weight
            if reached > share * total:
                found.append(node)
        return frozenset(found)

    def _borders(self, count: int) -> list[int]:
        """For each border the cheapest place near where it would divide evenly."""
        total, reached = sum(self.weight), 0
        windows: dict[int, list[int]] = {}
        for index, weight in enumerate(self.weight):
            reached += weight
            window = int(reached * count / total + 0.5) if total else 0
            if 0 < window < count:
                windows.setdefault(window, []).append(index + 1)
        return sorted({min(places, key=lambda place: self.cost[place]) for places in windows.values()})


class _Walk:
    """Prices splits of one joint graph by walking through their forward and backward, without making them."""

    def __init__(self, joint: Program) -> None:
        self.joint = joint
        returned = [node for node in joint.returned if isinstance(node, fx.Node)]
        self.returned = {viewed(node) for node in returned}

    def priced(self, terms: Terms) -> Priced:
        before, after, saved = halves(self.joint, choice_under(self.joint, terms))
        nodes = [node for node in self.joint.module.graph.nodes if node in before and node.op == "call_function"]
        kept = {viewed(node) for node in saved} | (self.returned & before)
        forward, held = self._peak(nodes, before, kept, 0)
        ordered = [node for node in late(self.joint, after) if node.op == "call_function"]
        given = {node for node in kept if node.op == "call_function"}
        backward, _ = self._peak(ordered, after, self.returned, held, given)
        again = sum(work(node) for node in after & before if node.op == "call_function" and not _is_view(node))
        return Priced(terms, max(forward, backward), again)

    def _peak(
        self,
        order: Sequence[fx.Node],
        within: set[fx.Node],
        stays: set[fx.Node],
        live: int,
        given: Collection[fx.Node] = (),
    ) -> tuple[int, int]:
        """The peak of what calls compute in their order, and what is left in the end. `stays` are not freed; `given`
        are there at first."""
        last: dict[fx.Node, int] = {}
        for index, node in enumerate(order):
            for read in node.all_input_nodes:
                last[viewed(read)] = index
        ending: dict[int, list[fx.Node]] = {}
        for node, index in last.items():
            if node not in stays and (node in given or node in within):
                ending.setdefault(index, []).append(node)
        size = {node: bytes_of(node.meta["val"]) for node in given if is_measurable(node)}
        peak = live
        for index, node in enumerate(order):
            size[node] = _own_bytes(node, within)
            live += size[node]
            peak = max(peak, live)
            live -= sum(size.get(gone, 0) for gone in ending.get(index, ()))
        return peak, live


def _own_bytes(node: fx.Node, within: set[fx.Node]) -> int:
    """The memory that a value has for itself: a view has none, nor has what is computed within the kernel of its only
    reader."""
    if not is_measurable(node) or _is_view(node):
        return 0
    readers = [user for user in node.users if user in within]
    if is_fused(node) and len(readers) == 1 and readers[0].op == "call_function" and is_fused(readers[0]):
        return 0
    return bytes_of(node.meta["val"])


def _is_view(node: fx.Node) -> bool:
    call, _ = producer(node)
    return isinstance(call.target, torch._ops.OpOverload) and call.target.is_view
