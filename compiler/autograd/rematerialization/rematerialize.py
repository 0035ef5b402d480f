"""`rematerialize`: which values of forward backward computes again instead of keeping them; a cheapest cut decides.

Each value of forward that backward could need is a pair of nodes, and a cut through the network is a choice:

    source -> in     cut: computed again, at the cost of that
    in -> out        cut: kept, at the cost of that
    out -> in        of a value that reads another: never cut, for what is computed again needs what it reads
    out -> sink      of what backward itself reads: never cut

What the user can see is not chosen anew. Inputs and outputs are kept where eager's formulas read them, and nowhere
else. So a change of them before backward is found out as in eager. There is one exception: a value that is computed
again at any price, because memory is scarce or the user said so, may read other inputs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

import torch
from torch import fx
from torch.utils.checkpoint import CheckpointPolicy

from assay.compiler.autograd.partition import Split, demands, is_free, split, viewed
from assay.compiler.autograd.rematerialization.max_flow import SINK, SOURCE, UNCUTTABLE, Network
from assay.compiler.autograd.rematerialization.random_replay import is_replayable
from assay.compiler.autograd.rematerialization.recompute_cost import again, is_fused, is_measurable, keep, work
from assay.compiler.autograd.result_copies import add_copies
from assay.compiler.ir.graph.decisions import Reason, Why
from assay.compiler.ir.graph.roles import Program
from assay.compiler.ir.graph.trace import gives_memory_on, has_effect, is_random, producer
from assay.compiler.ir.graph.wrapper_nodes import is_given, parts_of
from assay.compiler.ops.lower import is_allocation


@dataclass(frozen=True, slots=True)
class Terms:
    """What the cut is made under.

    `prices`: for values whose memory is dearer than where there is plenty, how much dearer; they may be computed again
    by calls of libraries, too, where otherwise only generated kernels are. Values in `kept` are not computed again,
    each for a reason; those in `again` are not kept.
    """

    prices: Mapping[fx.Node, int] = field(default_factory=dict)
    kept: Mapping[fx.Node, Reason] = field(default_factory=dict)
    again: frozenset[fx.Node] = frozenset()


PLENTY = Terms()
KEEP = (CheckpointPolicy.MUST_SAVE, CheckpointPolicy.PREFER_SAVE)
AGAIN = (CheckpointPolicy.MUST_RECOMPUTE, CheckpointPolicy.PREFER_RECOMPUTE)


def cheapest_split(joint: Program) -> Split:
    """The split that keeps, or computes again, whatever costs less. Cost: near-linear in nodes."""
    add_copies(joint)
    return split_under(joint, asked_for(joint))


def asked_for(joint: Program) -> Terms:
    """What the user has said, by `torch.utils.checkpoint` and its policies: within a region everything is computed
    again but what a policy saves, and random numbers that are few. What enters and leaves a region is kept where it is
    needed, so that backward computes one region again at a time. What a policy says must be computed again is not kept
    where it leaves for no other region, as a parameter that its region makes of shards.
    """
    regions = {node: node.meta["ac_graph_id"] for node in joint.module.graph.nodes if "ac_graph_id" in node.meta}
    if not regions:
        return PLENTY
    forward, _ = demands(joint)
    border = {node for node in joint.returned if isinstance(node, fx.Node)}
    left: set[fx.Node] = set()
    for node in forward:
        given = (read for read in node.all_input_nodes if read.op != "get_attr")  # which is part of its reader
        across = {viewed(read) for read in given if regions.get(read) != regions.get(node)}
        (border if node in regions else left).update(across)
    border |= {node for node in left if node.meta.get("recompute") is not CheckpointPolicy.MUST_RECOMPUTE}
    kept = dict.fromkeys(border, Reason.border)
    kept |= {node: Reason.policy for node in regions if node.meta.get("recompute") in KEEP}
    again = {node for node in regions if node.meta.get("recompute") in AGAIN} - kept.keys()
    return Terms(kept=kept, again=frozenset(again))


def split_under(joint: Program, terms: Terms) -> Split:
    choice, chosen = _choose(joint, terms)
    return split(joint, lambda node: is_free(node) or node in chosen, choice.why)


def choice_under(joint: Program, terms: Terms) -> Callable[[fx.Node], bool]:
    """Which values backward computes again."""
    chosen = rematerialized(joint, terms)
    return lambda node: is_free(node) or node in chosen


def rematerialized(joint: Program, terms: Terms = PLENTY) -> set[fx.Node]:
    """The values of forward that backward is to compute again, but for those that are free."""
    return _choose(joint, terms)[1]


def _choose(joint: Program, terms: Terms) -> tuple[_Choice, set[fx.Node]]:
    choice = _Choice(joint, *demands(joint), terms)
    if not terms.again and not any(may_be_again(node, node in terms.prices) for node in choice.wanted):
        return choice, set()  # without building the network
    return choice, choice.run()


class _Choice:
    """The network of one joint graph. `wanted`: what backward would be given if nothing were computed again."""

    def __init__(self, joint: Program, before: set[fx.Node], wanted: set[fx.Node], terms: Terms = PLENTY) -> None:
        self.terms = terms
        self._may_be_thorough = bool(terms.prices) or bool(terms.again)
        self.before = before
        self.wanted = wanted
        self.seen_by_user = _seen_by_user(joint)
        self.lasting = _lasting(joint, before) - terms.prices.keys()
        self.network = Network()
        self.entries: dict[fx.Node, int] = {}
        self.exits: dict[fx.Node, int] = {}

    def run(self) -> set[fx.Node]:
        pending = list(self.wanted)
        while pending:
            node = pending.pop()
            if node not in self.entries:
                pending.extend(self._add(node))
        for node in self.entries:
            if self._is_movable(node):
                for read in node.all_input_nodes:
                    self.network.add_edge(self.exits[read], self.entries[node], UNCUTTABLE)
        for node in self.wanted:
            self.network.add_edge(self.exits[node], SINK, UNCUTTABLE)
        side = self.network.source_side()
        return {node for node, entry in self.entries.items() if entry not in side and node.op == "call_function"}

    def _add(self, node: fx.Node) -> list[fx.Node]:
        """Makes the pair of a value. Returns what it would be computed from."""
        entry, leave = self.entries[node], self.exits[node] = self.network.add_node(), self.network.add_node()
        is_movable = self._is_movable(node)
        self.network.add_edge(entry, leave, self._keep(node))
        self.network.add_edge(SOURCE, entry, self._again(node) if is_movable else UNCUTTABLE)
        return node.all_input_nodes if is_movable else []

    def _is_movable(self, node: fx.Node) -> bool:
        return self._reason_to_keep(node) is None

    def _reason_to_keep(self, node: fx.Node) -> Reason | None:
        """Why a value is not computed again whatever it costs; None where the cut decides."""
        if node in self.terms.kept and not isinstance(node.meta.get("val"), tuple | list):  # but its parts
            return self.terms.kept[node]
        if node in self.wanted and node in self.seen_by_user:
            return Reason.input if viewed(node).op == "placeholder" else Reason.held
        if is_free(node):
            return None
        if node not in self.before:
            return Reason.source
        return reason_against(node, self._is_thorough(node))

    def why(self, node: fx.Node, saved: set[fx.Node], again: set[fx.Node]) -> Why:
        """Why a value is saved, or computed again, with what the cut weighed: of a saved value, also what backward
        would have to compute again beside it."""
        if node not in saved:
            return Why(self._reason_for_again(node), self._price_of(node), self._again(node))
        reason = self._reason_to_keep(node)
        if reason is not None:
            return Why(reason, again_ps=work(node) if node.op == "call_function" and is_measurable(node) else None)
        cost = self._again_with_sources(node, saved | again)
        return Why(Reason.keep if cost is not None else Reason.blocked, self._price_of(node), cost)

    def _reason_for_again(self, node: fx.Node) -> Reason:
        if is_free(node):
            return Reason.free
        if producer(node)[0] in self.terms.again:
            return Reason.asked
        if not is_fused(node):
            return Reason.budget
        return Reason.stored if self._is_stored(node) else Reason.fused

    def _price_of(self, node: fx.Node) -> int | None:
        """What keeping a value costs; None where that is not for the cut to weigh."""
        cost = self._keep(node)
        return cost if cost < UNCUTTABLE and is_measurable(node) else None

    def _again_with_sources(self, node: fx.Node, known: set[fx.Node]) -> int | None:
        """What it costs to compute a value again from those that backward knows, others to be kept or made again for it
        too; None where it cannot be."""
        total, seen, pending = 0, {node}, [node]
        while pending:
            each = pending.pop()
            if self._is_movable(each):
                total += self._again(each)
                pending += [read for read in each.all_input_nodes if read not in known and read not in seen]
                seen.update(each.all_input_nodes)
            else:
                total += self._keep(each)
        return total if total < UNCUTTABLE else None

    def _is_thorough(self, node: fx.Node) -> bool:
        return producer(node)[0] in self.terms.again or node in self.terms.prices

    def _keep(self, node: fx.Node) -> int:
        value = node.meta.get("val")
        if is_free(node) or isinstance(value, tuple | list) or (node in self.terms.again and self._is_movable(node)):
            return UNCUTTABLE
        if not isinstance(value, torch.Tensor):
            return 1
        if node in self.seen_by_user or not is_measurable(node):
            may_be_kept = node in self.wanted or (self._may_be_thorough and is_given(node))
            return 1 if may_be_kept else UNCUTTABLE
        return keep(node, self._is_in_memory(node), self.terms.prices.get(node, 1))

    def _again(self, node: fx.Node) -> int:
        if is_free(node) or node in self.terms.again:
            return 0
        return again(node, self._is_stored(node))

    def _is_stored(self, node: fx.Node) -> bool:
        """Whether backward stores a value: a library reads it there, or what reads it is far apart."""
        if node in self.lasting:
            return True
        readers = (user for user in _readers(node) if user not in self.before and user.op != "output")
        return any(not is_fused(user) for user in readers)

    def _is_in_memory(self, node: fx.Node) -> bool:
        """Whether forward stores a value in any case: a library makes or reads it, or it outlasts a library's call."""
        return (
            not is_fused(node)
            or node in self.lasting
            or any(user in self.before and not is_fused(user) for user in _readers(node))
        )


def _lasting(joint: Program, before: set[fx.Node]) -> set[fx.Node]:
    """The values of forward that are read again after a call of a library that follows from them.

    The sums that run along the layers of a network are such values. Each is in memory in forward. In backward all of
    them would be, at once.
    """
    order = {node: position for position, node in enumerate(joint.module.graph.nodes)}
    never = len(order)
    library: dict[fx.Node, int] = {}
    last: dict[fx.Node, int] = {}
    for node in reversed(joint.module.graph.nodes):
        if node not in before:
            continue
        readers = [user for user in node.users if user in before and not is_allocation(user.target)]
        library[node] = min((order[u] if not is_fused(u) else library[u] for u in readers), default=never)
        last[node] = max((last[u] if gives_memory_on(u) else order[u] for u in readers), default=-1)
    return {node for node in library if library[node] < last[node]}


def may_be_again(node: fx.Node, is_thorough: bool = False) -> bool:
    """Whether backward may compute a value again; `is_thorough`: also by a library, or by drawing the same random
    numbers. Never what has effects."""
    return reason_against(node, is_thorough) is None


def reason_against(node: fx.Node, is_thorough: bool = False) -> Reason | None:
    """Why backward may not compute a value again; None where it may."""
    call, _ = producer(node)
    if call.op != "call_function" or is_given(call):
        return Reason.source
    if is_random(call):
        return None if is_thorough and is_replayable(call) else Reason.random
    if has_effect(call):
        return Reason.effect
    if not is_measurable(node) and not isinstance(node.meta.get("val"), tuple | list):
        return Reason.unsized
    return None if is_thorough or is_fused(node) else Reason.library


def _readers(node: fx.Node) -> Iterator[fx.Node]:
    """The calls that read a value or a view of it."""
    pending = list(node.users)
    while pending:
        user = pending.pop()
        if gives_memory_on(user):
            pending.extend(user.users)
        else:
            yield user


def _seen_by_user(joint: Program) -> set[fx.Node]:
    """The values whose memory the user may hold: inputs, outputs, and their views."""
    returned = (node for node in joint.returned if isinstance(node, fx.Node))
    outputs = {viewed(part) for node in returned for part in parts_of(node)}
    return {node for node in joint.module.graph.nodes if viewed(node) in outputs or viewed(node).op == "placeholder"}
