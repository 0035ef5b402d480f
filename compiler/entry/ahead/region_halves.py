"""Regions that a joint graph calls, forward and backward: each split once, and called by its halves.

    r = fw(x); ...; gradients, again = bw(x, tangent)      where `bw` computes the region again
->  r, saved = forward(x); ...; gradients = backward(saved, tangent)

Law: the joint graph gives the same. Torch says by a number in the metadata which calls belong together.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx

from assay.compiler.capture.inputs import held
from assay.compiler.errors import OptionError
from assay.compiler.ir.graph.held_functions import IS_PURE, REGION, is_any_inside
from assay.compiler.ir.graph.roles import Program
from assay.compiler.ir.graph.trace import HELD, STANDS_FOR, eliminate_dead_nodes, has_effect, is_random
from assay.compiler.ir.typed_nodes import node_argument

Modules = tuple[fx.GraphModule, fx.GraphModule]
SplitRegion = Callable[[fx.GraphModule, int], Modules]
"""`split(joint, count)`: a region's joint graph, which returns `count` results before its gradients, as two halves."""

CALL_NUMBER = "call_id"
CONFIGURED = "nested_region_config"
"""What a region's user asks of its compile, in the `custom` metadata of its calls."""


@dataclass(frozen=True, slots=True)
class _Halves:
    """A region's halves under the names that they have in the graph; `saved` are what forward returns more."""

    forward: str
    backward: str
    results: int
    saved: tuple[int, ...]


@dataclass(slots=True)
class _Regions:
    """A joint graph while its regions are split. `halves` are those made so far, by what backward calls."""

    module: fx.GraphModule
    split_of: Callable[[fx.Node], SplitRegion]
    halves: dict[str, _Halves] = field(default_factory=dict)
    split: dict[str, _Halves] = field(default_factory=dict)

    def divide(self, forward: fx.Node, backward: fx.Node) -> None:
        """Has a pair of calls call the halves of their region."""
        halves = self._halves_of(forward, backward)
        self.split[_identifier(forward)] = halves
        called = self._call_forward(forward, halves)
        items = {place: self._item(called, place) for place in sorted(halves.saved)}
        for place, item in items.items():
            self._tell_held(item, called, getattr(self.module, halves.forward), place)
        tangents = backward.args[len(forward.args) :]
        self._replace(backward, halves.backward, [*(items[place] for place in halves.saved), *tangents])

    def _tell_held(self, item: fx.Node, call: fx.Node, region: fx.GraphModule, place: int) -> None:
        """Of an input that eager's autograd saves for this region the half returns it: it is saved as that item."""
        taken, made = region.graph.find_nodes(op="placeholder"), _returned(region)[place]
        operand = call.args[2 + taken.index(made)] if made in taken else None
        if isinstance(operand, fx.Node) and operand.meta.pop(HELD, None):
            item.meta[STANDS_FOR] = operand.name

    def call_as_split(self, forward: fx.Node) -> None:
        """Has a call that no backward belongs to call what the others do, if its region was split for one."""
        if (halves := self.split.get(_identifier(forward))) is not None:
            self._call_forward(forward, halves)

    def _call_forward(self, forward: fx.Node, halves: _Halves) -> fx.Node:
        return self._replace(forward, halves.forward, forward.args[2:])

    def _halves_of(self, forward: fx.Node, backward: fx.Node) -> _Halves:
        name = _identifier(backward).removeprefix("bw")
        if name not in self.halves:
            results = len(forward.meta["val"])
            joint = _joint(held(self.module, node_argument(backward, 0)), len(forward.args) - 2, results)  # type: ignore[arg-type]
            made = self.split_of(forward)(joint, results)
            places = _saved_places(*made, results)
            names = (f"partitioned_fw{name}", f"partitioned_bw{name}")
            for attribute, module in zip(names, made, strict=True):
                setattr(self.module, attribute, module)
            self.halves[name] = _Halves(*names, results, places)
        return self.halves[name]

    def _replace(self, call: fx.Node, name: str, operands: Sequence[Any]) -> fx.Node:
        graph, region = self.module.graph, getattr(self.module, name)
        with graph.inserting_before(call):
            read = graph.get_attr(name)
            made = graph.call_function(call.target, (read, name, *operands))  # type: ignore[arg-type]
        made.meta = {**call.meta, "val": _returned_values(region)}
        made.meta.pop(IS_PURE, None)
        if not is_any_inside(made, self.module, has_effect):
            made.meta[IS_PURE] = True
        call.replace_all_uses_with(made)
        graph.erase_node(call)
        return made

    def _item(self, call: fx.Node, place: int) -> fx.Node:
        """An item of what a call returns, in front of those that were made before."""
        with self.module.graph.inserting_after(call):
            item = self.module.graph.call_function(operator.getitem, (call, place))
        item.meta = {**call.meta, "val": call.meta["val"][place]}
        item.meta.pop(IS_PURE, None)
        return item


def draws(call: fx.Node, root: torch.nn.Module) -> bool:
    """Whether a region draws random numbers, which its backward may not draw again."""
    return is_any_inside(call, root, is_random)


def divide_regions(
    joint: Program,
    split_of: Callable[[fx.Node], SplitRegion],
    is_wanted: Callable[[fx.Node, torch.nn.Module], bool] = lambda *_: True,
) -> None:
    """Splits those regions of a joint graph that are wanted; `split_of` says how, by a region's forward call.

    Raises: OptionError for a partition function that returns a backward which takes what forward does not give.
    """
    regions, graph = _Regions(joint.module, split_of), joint.module.graph
    forwards = {_number(node): node for node in _calls(graph, "fw_") if is_wanted(node, joint.module)}
    pairs = [(forwards.pop(_number(node)), node) for node in _calls(graph, "bw_") if _number(node) in forwards]
    if not pairs:
        return
    for forward, backward in reversed(pairs):
        regions.divide(forward, backward)
    for forward in forwards.values():
        regions.call_as_split(forward)
    eliminate_dead_nodes(graph)
    joint.module.delete_all_unused_submodules()
    joint.module.recompile()


def _calls(graph: fx.Graph, prefix: str) -> Iterator[fx.Node]:
    """The calls of regions whose identifiers begin so, as torch has them for those that are differentiated."""
    for node in graph.find_nodes(op="call_function", target=REGION):
        if _identifier(node).startswith(prefix) and _number(node) is not None:
            yield node


def _number(call: fx.Node) -> object:
    return call.meta.get("custom", {}).get(CALL_NUMBER)


def _identifier(call: fx.Node) -> str:
    return str(call.args[1])


def _joint(module: fx.GraphModule, primals: int, results: int) -> fx.GraphModule:
    """The joint graph of a region in the form of partition functions: results first, its inputs named."""
    graph, copies = fx.Graph(), dict[fx.Node, fx.Node]()
    for place, node in enumerate(module.graph.find_nodes(op="placeholder")):
        name = f"primals_{place}" if place < primals else f"tangents_{place - primals}"
        copies[node] = graph.placeholder(name)
        copies[node].meta = {**node.meta}
    returned = graph.graph_copy(module.graph, copies)
    assert isinstance(returned, (tuple, list))
    graph.output((*returned[-results:], *returned[:-results]))
    return fx.GraphModule(module, graph)


def _returned(module: fx.GraphModule) -> Sequence[Any]:
    found: Sequence[Any] = next(iter(reversed(module.graph.nodes))).args[0]
    return found


def _returned_values(module: fx.GraphModule) -> tuple[object, ...]:
    return tuple(one.meta.get("val") if isinstance(one, fx.Node) else one for one in _returned(module))


def _saved_places(forward: fx.GraphModule, backward: fx.GraphModule, results: int) -> tuple[int, ...]:
    """Where among what forward returns each value stands that backward takes.

    Raises: OptionError for one that is not there.
    """
    places = {one.name: place for place, one in enumerate(_returned(forward)) if place >= results}
    taken = [node.name for node in backward.graph.find_nodes(op="placeholder")]
    saved = [name for name in taken if not name.startswith("tangents")]
    if missing := [name for name in saved if name not in places]:
        raise OptionError(f"assay: a region's partitioner has backward take {missing[0]}, which forward does not give")
    return tuple(places[name] for name in saved)
