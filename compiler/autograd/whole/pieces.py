"""`divided`: a stretch of a backward as pieces, each of which gives the gradients of some leaves.

    w1, w2, w3 = stretch(...)     ->     w3 = piece_0(...); w2 = piece_1(...); w1 = piece_2(...)

The hooks of a leaf run behind the piece that gives its gradient: an optimizer in hooks frees each gradient before the
next one is there, and communication begins early. Leaves come in the order in which the graph has their gradients, as
eager's do.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass

import torch
from torch import fx

from assay.compiler.ir.graph.roles import Program, Signature, UserInput, UserOutput
from assay.compiler.ir.graph.trace import gives_memory_on, module_of
from assay.compiler.ir.tensors.layout.strides import has_symbols

MOST_PIECES = 16
"""Gradients that come one by one are given together up to this part of all their bytes."""

Places = tuple[int, ...]
"""Which outputs of the stretch's program the leaf of a group takes."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a stretch: what it takes and keeps for later pieces, by name, and the groups that it gives. Its
    program returns the outputs of the groups, and then what it keeps."""

    program: Program
    takes: tuple[str, ...]
    last: frozenset[str]
    groups: tuple[int, ...]
    keeps: tuple[str, ...]


def divided(program: Program, groups: Sequence[Places], leaves: Sequence[Set[str]]) -> list[Piece] | None:
    """The pieces that give the groups; the last also gives what no group takes, as a group of its own at the end.

    `leaves` are, for each group, the inputs that show its leaf's memory.

    None where one piece is all, and for symbolic sizes and random numbers, whose order is kept.
    """
    nodes = list(program.module.graph.nodes)
    if any(_has_order(node) for node in nodes):
        return None
    dealt = list(_dealt(program, groups, nodes))
    return list(_Division(program, groups, leaves).run(dealt)) if len(dealt) > 1 else None


def _has_order(node: fx.Node) -> bool:
    if has_symbols(node.meta.get("val")) or isinstance(node.meta.get("val"), torch.SymInt):
        return True
    return isinstance(node.target, torch._ops.OpOverload) and torch.Tag.nondeterministic_seeded in node.target.tags


def _dealt(program: Program, groups: Sequence[Places], nodes: Sequence[fx.Node]) -> Iterator[list[int]]:
    """The groups of each piece, in the order in which the graph has their gradients."""
    places = {node: place for place, node in enumerate(nodes)}
    returned = program.returned
    given = {number: [returned[each] for each in group] for number, group in enumerate(groups) if group}
    ready = {
        number: max(places[each] for each in values if isinstance(each, fx.Node)) for number, values in given.items()
    }
    sizes = {number: sum(map(_bytes, values)) for number, values in given.items()}
    dealt: list[int] = [number for number, group in enumerate(groups) if not group]
    held = 0
    for number in sorted(ready, key=lambda each: (ready[each], each)):
        dealt.append(number)
        held += sizes[number]
        if held * MOST_PIECES >= sum(sizes.values()):
            yield dealt
            dealt, held = [], 0
    if dealt:
        yield dealt


def _bytes(node: object) -> int:
    value = node.meta.get("val") if isinstance(node, fx.Node) else None
    return value.numel() * value.element_size() if isinstance(value, torch.Tensor) else 0


class _Division:
    """`done` are the nodes that earlier pieces have computed."""

    def __init__(self, program: Program, groups: Sequence[Places], leaves: Sequence[Set[str]]) -> None:
        self.program = program
        self.returned = program.returned
        self.nodes = list(program.module.graph.nodes)
        self.places = {node: place for place, node in enumerate(self.nodes)}
        self.groups = [*groups, self._left(groups)]
        self.leaves = [*leaves, frozenset()]
        self.done: set[fx.Node] = set(program.placeholders)

    def _left(self, groups: Sequence[Places]) -> Places:
        taken = {each for group in groups for each in group}
        return tuple(each for each in range(len(self.returned)) if each not in taken)

    def run(self, dealt: Sequence[Sequence[int]]) -> Iterator[Piece]:
        given = [[*numbers] for numbers in dealt]
        given[-1].append(len(self.groups) - 1)
        needs = []
        for numbers in given:
            outputs = [self.returned[each] for number in numbers for each in self.groups[number]]
            written = {name for number in numbers for name in self.leaves[number]}
            needs.append(self._needs([node for node in outputs if isinstance(node, fx.Node)], written))
        later: set[fx.Node] = set()
        pieces = []
        for numbers, (computed, taken) in zip(reversed(given), reversed(needs), strict=True):
            keeps = [node for node in computed if node in later]
            pieces.append(self._piece(numbers, computed, taken, keeps, later))
            later |= set(taken)
        return reversed(pieces)

    def _needs(self, outputs: Sequence[fx.Node], written: Set[str]) -> tuple[list[fx.Node], list[fx.Node]]:
        """What a piece computes, and what it takes from before; what is cheap is computed in each.

        It computes all that stands before its outputs, and all that reads the leaves whose hooks come next: these may
        write a leaf.
        """
        found: set[fx.Node] = set()
        taken: set[fx.Node] = set()
        limit = max((self.places[node] for node in outputs), default=0)
        calls = [node for node in self.nodes if node.op == "call_function" and not _is_cheap(node)]
        first = (node for node in calls if self.places[node] < limit or _reads(node, written))
        pending = [*outputs, *(node for node in first if node not in self.done)]
        while pending:
            node = pending.pop()
            if node in self.done and not _is_cheap(node):
                taken.add(node)
            elif node not in found:
                found.add(node)
                pending.extend(node.all_input_nodes)
                if not isinstance(node.meta.get("val"), torch.Tensor):
                    pending.extend(user for user in node.users if user.op == "call_function")
        self.done |= found
        return [node for node in self.nodes if node in found], [node for node in self.nodes if node in taken]

    def _piece(
        self,
        numbers: Sequence[int],
        computed: Sequence[fx.Node],
        taken: Sequence[fx.Node],
        keeps: Sequence[fx.Node],
        later: set[fx.Node],
    ) -> Piece:
        graph = fx.Graph()
        copies: dict[fx.Node, fx.Node] = {}
        for node in taken:
            copies[node] = graph.placeholder(node.name)
            copies[node].meta.update(node.meta)
        for node in computed:
            copies[node] = graph.node_copy(node, copies.__getitem__)
        memories = {_memory(node) for node in later}
        outputs = []
        for place in (each for number in numbers for each in self.groups[number]):
            value = self.returned[place]
            assert isinstance(value, fx.Node)
            outputs.append(_copied(graph, value, copies[value]) if _memory(value) in memories else copies[value])
        graph.output([*outputs, *(copies[node] for node in keeps)])
        signature = Signature(
            tuple(map(UserInput, range(len(taken)))), tuple(map(UserOutput, range(len(outputs) + len(keeps))))
        )
        last = frozenset(node.name for node in taken if node not in later)
        takes, kept = (tuple(node.name for node in nodes) for nodes in (taken, keeps))
        return Piece(Program(module_of(self.program.module, graph), signature), takes, last, tuple(numbers), kept)


def _is_cheap(node: fx.Node) -> bool:
    """Whether a node is computed again in each piece: a view, or a constant."""
    return node.op == "get_attr" or (node.op == "call_function" and gives_memory_on(node))


def _reads(node: fx.Node, names: Set[str]) -> bool:
    """Whether a call reads one of these inputs, or a view of one."""
    return any(_memory(each).name in names for each in node.all_input_nodes)


def _memory(node: fx.Node) -> fx.Node:
    """The node whose memory a view shows."""
    while node.op == "call_function" and gives_memory_on(node):
        node = node.all_input_nodes[0]
    return node


def _copied(graph: fx.Graph, node: fx.Node, value: fx.Node) -> fx.Node:
    """A gradient whose memory later pieces read: hooks may write it."""
    copy = graph.call_function(torch.ops.aten.clone.default, (value,))
    copy.meta.update(node.meta)
    return copy
