"""`Refusal`: what becomes of a graph that the compiler refuses, always or for inputs that overlap in some way."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from torch import fx

from assay.compiler.capture.ambient import in_forward_mode
from assay.compiler.capture.inputs import Call
from assay.compiler.entry.graph_as_call import (
    Compiled,
    Freedom,
    GraphAsCall,
    as_call,
    has_regions,
    held_tensors,
    with_held,
)
from assay.compiler.entry.pieces.parts import contexts, foreign, units_of, without_held
from assay.compiler.entry.pieces.piece import Compile
from assay.compiler.entry.pieces.regions import regions_apart
from assay.compiler.entry.pieces.run import in_pieces
from assay.compiler.entry.pieces.unseen_writes import has_unseen_writes, units_of_unseen_writes
from assay.compiler.errors import Unsupported
from assay.compiler.fallback import nodes_of
from assay.compiler.ir.graph.roles import GraphCall
from assay.compiler.journal import count_cut
from assay.compiler.options import Options

MOST_CUTS = 32
"""How often one graph of the user's is cut, its pieces included. What is left of it then runs in eager."""


@dataclass(slots=True)
class Cuts:
    """How often a graph of the user's has been cut, its pieces included."""

    made: int = 0


@dataclass(frozen=True, slots=True)
class Refusal:
    """How to run a graph that the compiler refuses: in pieces, which `compile_piece` compiles.

    `is_refused` says of a call whether the compiler refuses it. `count_eager` counts a graph that is given back whole,
    by the reason and its nodes.
    """

    gm: fx.GraphModule
    options: Options
    cuts: Cuts
    count_eager: Callable[[str, int], None]
    compile_piece: Compile
    is_refused: Callable[[Call], bool]

    def count(self, reason: str) -> None:
        self.count_eager(reason, nodes_of(self.gm))

    def regions_apart(self, example_inputs: Sequence[object]) -> Compiled | None:
        """The graph with its regions compiled once each; None for a graph that is recorded as a whole.

        A recorded CUDA graph serves one call at a time, so with them regions are recorded as what they compute.
        """
        if not has_regions(self.gm) or self.options.cudagraphs or in_forward_mode():
            return None
        own = held_tensors(self.gm)
        if has_unseen_writes(self.gm, [*example_inputs, *own.values()]):
            return None
        gm, _ = without_held(self.gm, list(own))
        made = regions_apart(gm, [*example_inputs, *own.values()], self.compile_piece)
        return None if made is None else with_held(self.gm, made)

    def in_pieces(
        self, traced: GraphAsCall | None, reason: Unsupported, example_inputs: Sequence[object]
    ) -> Compiled | None:
        """The graph in pieces, for inputs like these; None where all of it is for eager."""
        leaves = [*example_inputs, *held_tensors(self.gm).values()]
        made = self._divided(traced, reason, leaves, overlap=False)
        return None if made is None else with_held(self.gm, made)

    def for_leaves(self, traced: GraphAsCall, reason: Unsupported, leaves: Sequence[object]) -> GraphCall | None:
        """The graph in pieces, for inputs that overlap as these leaves do; None where all of it is for eager."""
        made = self._divided(traced, reason, leaves, overlap=True)
        return None if made is None else lambda args: tuple(made(*args))

    def _divided(
        self,
        traced: GraphAsCall | None,
        reason: Unsupported,
        leaves: Sequence[object],
        overlap: bool,
    ) -> Compiled | None:
        if self.options.fallback == "error" or self.cuts.made >= MOST_CUTS:
            return None
        if in_forward_mode():  # in which parts would be refused too
            return None
        gm, copies = without_held(self.gm, list(held_tensors(self.gm)))
        failed = copies.get(traced.failed[0]) if traced is not None and traced.failed else None
        placeholders = gm.graph.find_nodes(op="placeholder")
        given = {node.name: leaf for node, leaf in zip(placeholders, leaves, strict=True)}
        is_refused = functools.partial(self._is_refused, given, overlap)
        count = functools.partial(count_cut, str(reason))
        units = units_of(gm.graph)
        eager = contexts(units) | foreign(units, zip(placeholders, leaves, strict=True))
        eager |= units_of_unseen_writes(gm, units, leaves, overlap)
        made = in_pieces(gm, eager, failed, is_refused, self.compile_piece, count)
        self.cuts.made += made is not None
        return made

    def _is_refused(self, given: Mapping[str, object], overlap: bool, first: fx.GraphModule) -> bool:
        """Whether the compiler refuses a graph that takes some of what is given, by name, as it may `overlap`."""
        taken = [given[node.name] for node in first.graph.find_nodes(op="placeholder")]
        try:
            call = as_call(first, taken, Freedom.of(self.options)).call
        except Unsupported:
            return True
        return self.is_refused(call.specialized(taken, True) if overlap else call)
