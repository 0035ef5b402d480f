"""`budget_split`: the fastest split whose peak of memory is within a share of what the cheapest cut takes.

    memory_budget = 1      the cheapest cut, as it is without a budget
    memory_budget = 0.5    at most half of its peak; or, where no split reaches that, the least peak that is found

Splits to choose from are cut under rising prices of memory, and with calls of any kind computed again. Other splits
cut the forward into segments and keep what crosses from one to the next. Backward then computes one segment again at a
time, and not everything at once. Each split is priced by walking through its forward and backward. A lower budget
chooses among fewer of the same splits, the fastest of them, so the peak never rises when the budget falls.

A region of the user's (`torch.autograd.graph.region_activation_memory_budget`) has a budget of its own, a share of what
is kept of the region without one. Torch takes such regions only where one budget covers the whole graph.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

from torch import fx

from assay.compiler.autograd.partition import Split, demands, halves, late, viewed
from assay.compiler.autograd.rematerialization.recompute_cost import bytes_of, is_fused, is_measurable, work
from assay.compiler.autograd.rematerialization.rematerialize import (
    Terms,
    asked_for,
    cheapest_split,
    choice_under,
    split_under,
)
from assay.compiler.ir.graph.decisions import Reason
from assay.compiler.ir.graph.roles import Program
from assay.compiler.ir.graph.trace import gives_memory_on, producer

REGION = "_region_activation_memory_budget"
"""What torch marks the calls of a region with that has a budget."""
PRICES = (2, 4, 8, 16, 64, 1 << 12)
"""The last is that of a byte for which anything is computed again."""
SEGMENTS = (1, 2, 3, 4, 6, 8, 12, 16, 24)
"""Into how many segments the forward is cut; a number beyond its values is left out."""
SHARES = tuple(eighth / 8 for eighth in range(1, 8))
"""Of the best splits there are others in which only the first segments pay the price of memory."""


@dataclass(frozen=True, slots=True)
class Priced:
    """A split with what it is estimated to take: bytes at the peak of a step beyond inputs and of what is kept for
    backward, picoseconds made again."""

    terms: Terms
    peak_bytes: int
    kept_bytes: int
    again_ps: int


def budget_split(joint: Program, budget: float, plain: Callable[[Program], Split] = cheapest_split) -> Split:
    """The fastest split within the budget, 0 to 1, and within those of regions. `plain` makes the split where there is
    none. Cost: 100 cheapest cuts, where a budget is below 1, and as many for each region.
    """
    regions = _regions(joint, budget)
    if regions:
        return split_under(joint, regional(joint, regions))
    return plain(joint) if budget >= 1 else split_under(joint, within(candidates(joint), budget).terms)


def _regions(joint: Program, budget: float) -> dict[float, frozenset[fx.Node]]:
    """The calls of the regions that the user has given budgets, and the rest of the program at that of the whole; none
    where there are no such regions."""
    found: dict[float, set[fx.Node]] = {}
    for node in joint.module.graph.nodes:
        share = (node.meta.get("custom") or {}).get(REGION)
        if share is not None:
            found.setdefault(share, set()).add(node)
    if found:
        before, _ = demands(joint)
        inside = set().union(*found.values())
        found.setdefault(budget, set()).update(before - inside)
    return {share: frozenset(nodes) for share, nodes in found.items()}


def regional(joint: Program, regions: Mapping[float, frozenset[fx.Node]]) -> Terms:
    """The terms under which each region keeps at most its share of what it keeps without a budget, or the least that
    is found. Regions of one budget count as one."""
    chosen = asked = asked_for(joint)
    for share, region in regions.items():
        if share < 1:
            own = _kept_within(joint, asked, region)
            found = _candidates(joint, region, lambda one: one.kept_bytes)
            allowed = max(found[0].kept_bytes - (1 - share) * own, min(one.kept_bytes for one in found))
            best = next(one for one in _best(found, lambda one: one.kept_bytes) if one.kept_bytes <= allowed).terms
            chosen = replace(chosen, prices={**chosen.prices, **best.prices}, kept={**chosen.kept, **best.kept})
    return chosen


def within(found: Sequence[Priced], budget: float) -> Priced:
    """The fastest of the candidates, of which the first is the cheapest cut, that keeps to the budget."""
    most, least = found[0].peak_bytes, min(one.peak_bytes for one in found)
    allowed = max(least, budget * most)
    return next(one for one in _best(found, lambda one: one.peak_bytes) if one.peak_bytes <= allowed)


def candidates(joint: Program) -> list[Priced]:
    """The cheapest cut, then all others. They do not depend on the budget."""
    return _candidates(joint, frozenset(joint.module.graph.nodes), lambda one: one.peak_bytes)


def _candidates(joint: Program, region: frozenset[fx.Node], bytes_taken: Callable[[Priced], int]) -> list[Priced]:
    """The cheapest cut, and splits in which the memory of a region has a price."""
    walk, borders, asked = _Walk(joint), _Borders(joint, region), asked_for(joint)
    found = [walk.priced(asked)]
    for count in SEGMENTS:
        kept = borders.crossing(count)
        if kept is not None:
            terms = [
                replace(asked, prices=dict.fromkeys(region, price), kept={**kept, **asked.kept}) for price in PRICES
            ]
            found += [walk.priced(one) for one in terms]
    for one in _best(found, bytes_taken):
        prices = one.terms.prices
        for cheap in (borders.after(share) for share in SHARES) if prices else ():
            dear = {node: price for node, price in prices.items() if node not in cheap}
            found.append(walk.priced(replace(one.terms, prices=dear)))
    return found


def _best(found: Sequence[Priced], bytes_taken: Callable[[Priced], int]) -> list[Priced]:
    """Those that no other is both smaller and faster than, the fastest first."""
    best: list[Priced] = []
    for one in sorted(found, key=lambda one: (one.again_ps, bytes_taken(one))):
        if not best or bytes_taken(one) < bytes_taken(best[-1]):
            best.append(one)
    return best


class _Borders:
    """Where a region of a forward can be cut into segments: between two of its calls, at the cost of the values that
    cross."""

    def __init__(self, joint: Program, region: Collection[fx.Node]) -> None:
        before, wanted = demands(joint)
        self.order = [node for node in joint.module.graph.nodes if node in before and node.op == "call_function"]
        self.place = {node: index for index, node in enumerate(self.order)}
        self.last = self._last()
        inside = wanted.intersection(region)
        self.weight = [bytes_of(n.meta["val"]) if n in inside and is_measurable(n) else 0 for n in self.order]
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
        twice = (node for node in after & before if node.op == "call_function")
        again = sum(work(node) for node in twice if not gives_memory_on(producer(node)[0]))
        return Priced(terms, max(forward, backward), _bytes(viewed(node) for node in saved), again)

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


def _kept_within(joint: Program, terms: Terms, region: Collection[fx.Node]) -> int:
    """The bytes that forward keeps of what a region computes."""
    _, _, saved = halves(joint, choice_under(joint, terms))
    return _bytes(node for node in map(viewed, saved) if node in region)


def _bytes(values: Iterable[fx.Node]) -> int:
    """Of values that calls compute, each counted once."""
    return sum(bytes_of(n.meta["val"]) for n in set(values) if n.op == "call_function" and is_measurable(n))


def _own_bytes(node: fx.Node, within: set[fx.Node]) -> int:
    """The memory that a value has for itself: a view has none, nor has what is computed within the kernel of its only
    reader."""
    if not is_measurable(node) or gives_memory_on(producer(node)[0]):
        return 0
    readers = [user for user in node.users if user in within]
    if is_fused(node) and len(readers) == 1 and readers[0].op == "call_function" and is_fused(readers[0]):
        return 0
    return bytes_of(node.meta["val"])
