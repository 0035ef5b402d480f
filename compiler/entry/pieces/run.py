"""`in_pieces`: what runs a graph that the compiler cannot take as a whole."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from torch import fx

from assay.compiler.capture.ambient import autocast_unwound
from assay.compiler.capture.inputs import held
from assay.compiler.entry.graph_as_call import enters_autocast, in_eager
from assay.compiler.entry.pieces.control_flow import ControlFlow, controlled_nodes
from assay.compiler.entry.pieces.parts import (
    Part,
    Unit,
    divided,
    first_units,
    is_submodule,
    is_switch,
    units_of,
)
from assay.compiler.entry.pieces.piece import Compile, Piece
from assay.compiler.fallback import nodes_of

Runner = Callable[..., Sequence[Any]]
IsRefused = Callable[[fx.GraphModule], bool]


@dataclass(frozen=True, slots=True)
class Step:
    """A part as it runs. `frees` are the values that nothing reads after it."""

    part: Part
    run: Runner
    frees: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class InPieces:
    """A graph in pieces, called as the graph is: with its arguments, for what it returns."""

    takes: tuple[str, ...]
    steps: tuple[Step, ...]
    returns: Any
    has_autocast: bool = False

    def __call__(self, *args: object) -> Any:
        if not self.has_autocast:
            return self._run(args)
        with autocast_unwound():
            return self._run(args)

    def _run(self, args: Sequence[object]) -> Any:
        values: dict[str, Any] = dict(zip(self.takes, args, strict=True))
        for step in self.steps:
            given = [values[name] for name in step.part.takes]
            for name in step.frees:
                del values[name]
            values.update(zip(step.part.gives, step.run(*given), strict=True))
        return fx.node.map_aggregate(
            self.returns, lambda leaf: values[leaf.name] if isinstance(leaf, fx.Node) else leaf
        )


def in_pieces(
    gm: fx.GraphModule,
    eager: set[int],
    failed: fx.Node | None,
    is_refused: IsRefused,
    compile: Compile,
    count: Callable[[int], None],
) -> InPieces | None:
    """A graph that holds no tensors, cut at what the compiler refuses; None where all of it would run in eager.

    The units `eager` run in eager in any case. `failed` is the node at which its recording failed. Where there is none
    of either, the first units are looked for that are refused. Each part that runs in eager is counted by its nodes.
    """
    units = units_of(gm.graph)
    at = next((index for index, unit in enumerate(units) if failed in unit), None)
    if at is None and not eager:
        at = _first_refused(gm, units, is_refused)
    if at is not None:
        eager = eager | {at}
    if not eager or (len(eager) == len(units) and not controlled_nodes(gm)):
        return None
    parts = divided(gm, units, eager)
    for part in parts:
        if part.is_eager and (nodes := _run_in_eager(part.module)):
            count(nodes)
    return joined(gm, parts, [runner_of(part, compile) for part in parts])


def joined(gm: fx.GraphModule, parts: Sequence[Part], runners: Sequence[Runner]) -> InPieces:
    """The parts of a graph, each with what runs it, as the graph."""
    (output,) = gm.graph.find_nodes(op="output")
    takes = tuple(node.name for node in gm.graph.find_nodes(op="placeholder"))
    return InPieces(takes, tuple(_steps(parts, output, runners)), output.args[0], enters_autocast(gm.graph))


def _run_in_eager(gm: fx.GraphModule) -> int:
    """How many nodes of a part of eager's are none of a loop's or branch's, whose bodies are compiled."""
    loops = controlled_nodes(gm)
    bodies = {held(gm, read) for node in loops for read in node.all_input_nodes if is_submodule(gm, read)}
    compiled = nodes_of(*(body for body in bodies if isinstance(body, fx.GraphModule)))
    return nodes_of(gm) - sum(is_switch(node) for node in gm.graph.nodes) - len(loops) - compiled


def _first_refused(gm: fx.GraphModule, units: Sequence[Unit], is_refused: IsRefused) -> int | None:
    """The unit with which the first units are refused, found by halving; None where they never are."""
    if not is_refused(first_units(gm, units)):
        return None
    taken, refused = 0, len(units)
    while refused - taken > 1:
        middle = (taken + refused) // 2
        if is_refused(first_units(gm, units[:middle])):
            refused = middle
        else:
            taken = middle
    return refused - 1


def _steps(parts: Sequence[Part], output: fx.Node, runners: Sequence[Runner]) -> list[Step]:
    last: dict[str, int] = {name: index for index, part in enumerate(parts) for name in part.takes}
    kept = {node.name for node in output.all_input_nodes}
    steps = []
    for index, (part, run) in enumerate(zip(parts, runners, strict=True)):
        takes = dict.fromkeys(part.takes)  # a region may be called with one value twice
        frees = tuple(name for name in takes if last[name] == index and name not in kept)
        steps.append(Step(part, run, frees))
    return steps


def runner_of(part: Part, compile: Compile) -> Runner:
    """What runs a part: eager, loops and branches over compiled bodies, or a piece."""
    if part.is_eager and controlled_nodes(part.module):
        return ControlFlow(part.module, compile)
    eager = in_eager(part.module)
    return eager if part.is_eager else Piece(part.module, compile, eager)
