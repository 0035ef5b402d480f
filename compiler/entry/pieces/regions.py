"""`regions_apart`: a graph whose regions are called from several places, each region compiled once.

    y = region_0(x, a) + x; z = region_0(y, b) + y    ->    two pieces, the region and the sum, each called twice

Autograd records each call of a region as a node of its own, so that backward calls them in reverse order.
"""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import torch
from torch import fx
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols
from torch.utils import _pytree as pytree

from assay.compiler.autograd.partition import Split
from assay.compiler.capture.inputs import held
from assay.compiler.entry.ahead.graph_names import next_compile
from assay.compiler.entry.ahead.partition_functions import partition_asked, split_by
from assay.compiler.entry.ahead.region_halves import CONFIGURED
from assay.compiler.entry.graph_as_call import in_eager
from assay.compiler.entry.pieces.parts import Part, Unit, contexts, foreign, is_submodule, is_switch, part_of, units_of
from assay.compiler.entry.pieces.piece import MOST_VARIANTS, Compile, Piece
from assay.compiler.entry.pieces.run import InPieces, Runner, joined, runner_of
from assay.compiler.ir.graph.held_functions import REGION
from assay.compiler.ir.graph.roles import Program


class _Named(str):
    """The name of a value, which is told from a string of the same letters."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


@dataclass(frozen=True, slots=True)
class RegionCall:
    """A call of a region at one place, which reads some of what the region returns."""

    region: Piece
    picks: tuple[int, ...]

    def __call__(self, *args: object) -> Sequence[Any]:
        results = self.region(*args)
        return [results[index] for index in self.picks]


def regions_apart(gm: fx.GraphModule, inputs: Sequence[object], compile: Compile) -> InPieces | None:
    """A graph that holds no tensors, with its regions as calls of pieces; None for a graph that is recorded as a whole.

    A region that is called once is a part of its surroundings, unless it names its partitioner. A graph is
    recorded as a whole where a part of it would run in eager, or where it computes sizes itself.
    """
    units = units_of(gm.graph)
    regions = _shared(gm, units)
    if not regions or not _is_divisible(gm, units, inputs):
        return None
    calls = Counter(regions.values())
    pieces = {region: Piece(region, compile, in_eager(region), MOST_VARIANTS + calls[region]) for region in calls}
    between: dict[object, Runner] = {}
    parts: list[Part] = []
    runners: list[Runner] = []
    for key, indices in groupby(range(len(units)), _kinds(units, regions)):
        run: Runner
        if key in regions:
            part, run = _called(units[key], pieces[regions[key]])
        else:
            part = part_of(gm, [node for index in indices for node in units[index]], key == _SWITCH)
            run = between.setdefault(text_of(part.module), runner_of(part, compile))
            if isinstance(run, Piece):
                run.most += 1
        parts.append(part)
        runners.append(run)
    return joined(gm, parts, runners)


def text_of(gm: fx.GraphModule) -> str:
    """A graph as text without the names of its values: equal for graphs that compute the same of their arguments."""
    names = {node: f"%{index}" for index, node in enumerate(gm.graph.nodes)}

    def shown(value: Any) -> str:
        return repr(fx.node.map_arg(value, lambda node: _Named(names[node])))

    lines = []
    for node in gm.graph.nodes:
        target: object = "" if node.op in ("placeholder", "output") else node.target
        if node.op == "get_attr":
            target = id(held(gm, node))
        elif callable(target):
            target = id(target)
        lines.append(f"{node.op} {target} {shown(node.args)} {shown(node.kwargs)} {node.meta.get('custom')}")
    return "\n".join(lines)


_PLAIN, _SWITCH = -1, -2


def _kinds(units: Sequence[Unit], regions: Mapping[int, fx.GraphModule]) -> Callable[[int], int]:
    """By the index of a unit: its own index where it calls a region, else whether it switches a mode."""

    def kind(index: int) -> int:
        return index if index in regions else _SWITCH if is_switch(units[index][0]) else _PLAIN

    return kind


def _shared(gm: fx.GraphModule, units: Sequence[Unit]) -> dict[int, fx.GraphModule]:
    """The regions that are compiled apart, by the units that call them; of regions alike one stands for all."""
    called = {index: region for index, unit in enumerate(units) if (region := _region(gm, unit)) is not None}
    alike: dict[object, fx.GraphModule] = {}
    for index, region in called.items():
        called[index] = alike.setdefault((text_of(region), id(region.meta.get(CONFIGURED))), region)
    calls = Counter(called.values())
    return {index: region for index, region in called.items() if calls[region] > 1 or split_asked(region) is not None}


def _region(gm: fx.GraphModule, unit: Unit) -> fx.GraphModule | None:
    """The region that a unit calls with values of the graph, and of which it reads nothing but items."""
    first, *items = unit
    if first.target is not REGION or any(item.target is not operator.getitem for item in items):
        return None
    region, _, *operands = first.args
    if first.kwargs or not isinstance(region, fx.Node) or not is_submodule(gm, region):
        return None
    if not all(isinstance(operand, fx.Node) and not is_submodule(gm, operand) for operand in operands):
        return None
    if any(item.args[0] is not first for item in items) or set(first.users) != set(items):
        return None
    found = held(gm, region)
    return found if isinstance(found, fx.GraphModule) else None


def split_asked(region: fx.GraphModule) -> Callable[[Program], Split] | None:
    """How a region's user has its joint graph split: by a function in torch's form, or by the name of one.

    Raises: OptionError for a name that torch does not have.
    """
    asked = partition_asked(region.meta.get(CONFIGURED))
    return None if asked is None else split_by(asked, next_compile())


def _is_divisible(gm: fx.GraphModule, units: Sequence[Unit], inputs: Sequence[object]) -> bool:
    """Whether no part of a graph would run in eager, nor be compiled anew for sizes that the graph computes."""
    placeholders = gm.graph.find_nodes(op="placeholder")
    if foreign(units, zip(placeholders, inputs, strict=True)):
        return False
    if not all(is_switch(units[index][0]) for index in contexts(units)):
        return False
    return not any(_has_computed_sizes(node.meta.get("example_value")) for node in gm.graph.nodes)


def _has_computed_sizes(value: object) -> bool:
    symbolic = (torch.Tensor, torch.SymInt, torch.SymFloat, torch.SymBool)
    return any(free_unbacked_symbols(leaf) for leaf in pytree.tree_leaves(value) if isinstance(leaf, symbolic))


def _called(unit: Unit, region: Piece) -> tuple[Part, RegionCall]:
    """The call of a region as a part, and what runs it."""
    first, *items = unit
    takes = tuple(operand.name for operand in first.args[2:])  # type: ignore[union-attr]
    read = [item for item in items if item.users]
    picks = tuple(item.args[1] for item in read)
    return Part(region.module, takes, tuple(item.name for item in read), False), RegionCall(region, picks)  # type: ignore[arg-type]
