"""`rematerialize`: which values of forward backward computes again instead of keeping them; a cheapest cut decides.

Each value of forward that backward could need is a pair of nodes, and a cut through the network is a choice:

    source -> in     cut: computed again, at the cost of that
    in -> out        cut: kept, at the cost of that
    out -> in        of a value that reads another: never cut, for what is computed again needs what it reads
    out -> sink      of what backward itself reads: never cut

What the user can see is not chosen anew. Inputs and outputs are kept where eager's formulas read them, so that changing
them before backward is found out as in eager, and nowhere else.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import fx

from compiler.autograd.cost import again, is_elementwise, is_fused, is_measurable, keep
from compiler.autograd.max_flow import SINK, SOURCE, UNCUTTABLE, Network
from compiler.autograd.partition import Split, demands, is_free, split, viewed
from compiler.ir.roles import Program
from compiler.ir.trace import is_random


def cheapest_split(joint: Program) -> Split:
    """The split that keeps, or computes again, whatever costs less. Cost: near-linear in nodes."""
    chosen = rematerialized(joint)
    return split(joint, lambda node: is_free(node) or node in chosen)


def rematerialized(joint: Program) -> set[fx.Node]:
    """The values of forward that backward is to compute again, but for those that are free."""
    before, wanted = demands(joint)
    if not any(_may_be_again(node) for node in wanted):
        return set()
    return _Choice(joint, before, wanted).run()


class _Choice:
    """The network of one joint graph. `wanted`: what backward would be given if nothing were computed again."""

    def __init__(self, joint: Program, before: set[fx.Node], wanted: set[fx.Node]) -> None:
        self.before = before
        self.wanted = wanted
        self.seen_by_user = _seen_by_user(joint)
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
        if node in self.wanted and node in self.seen_by_user:
            return False
        return is_free(node) or (_may_be_again(node) and node in self.before)

    def _keep(self, node: fx.Node) -> int:
        value = node.meta.get("val")
        if is_free(node) or isinstance(value, tuple | list):
            return UNCUTTABLE
        if not isinstance(value, torch.Tensor):
            return 1
        if node in self.seen_by_user or not is_measurable(node):
            return 1 if node in self.wanted else UNCUTTABLE
        return keep(node, self._is_in_memory(node))

    def _again(self, node: fx.Node) -> int:
        if is_free(node):
            return 0
        return again(node, any(user not in self.before and not is_fused(user) for user in _readers(node)))

    def _is_in_memory(self, node: fx.Node) -> bool:
        """Whether forward stores a value in any case: a library makes it, or reads it."""
        return not is_fused(node) or any(user in self.before and not is_fused(user) for user in _readers(node))


def _may_be_again(node: fx.Node) -> bool:
    return node.op == "call_function" and not is_random(node) and is_measurable(node) and is_elementwise(node)


def _readers(node: fx.Node) -> Iterator[fx.Node]:
    """The calls that read a value or a view of it."""
    pending = list(node.users)
    while pending:
        user = pending.pop()
        if isinstance(user.target, torch._ops.OpOverload) and user.target.is_view:
            pending.extend(user.users)
        else:
            yield user


def _seen_by_user(joint: Program) -> set[fx.Node]:
    """The values whose memory the user may hold: inputs, outputs, and their views."""
    outputs = {viewed(node) for node in joint.returned if isinstance(node, fx.Node)}
    return {node for node in joint.module.graph.nodes if viewed(node) in outputs or viewed(node).op == "placeholder"}
