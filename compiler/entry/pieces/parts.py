"""`divided`: a graph as graphs of consecutive nodes, some of which eager runs.

    a = x.sin(); b = unknown(a); c = b.cos() * a       ->   a = part_0(x); b = part_1(a); c = part_2(a, b)

The smallest thing that is divided off is a unit. A unit is a node, with the items that are taken out of its tuple. A
level of torch.func is one unit: all nodes from the one that opens it to the one that closes it.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import fx
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from assay.compiler.capture.inputs import held

Unit = tuple[fx.Node, ...]

OPENS = ("_increment_nesting", "_saved_tensors_hooks_disable", "_push_saved_tensors_default_hooks")
CLOSES = ("_decrement_nesting", "_saved_tensors_hooks_enable", "_pop_saved_tensors_default_hooks")
"""Ends of names of functions: what runs between an opening one and its closing one cannot be called apart."""
PASSED = (torch.Tensor, torch.SymInt, torch.SymFloat, torch.SymBool, bool, int, float)
"""What one part can give to another."""
SWITCHES = ("_set_grad_enabled", "_lower_version_count_by_1", "_unsafe_set_version_counter")
"""Names of functions that switch the mode of all that follows, or change what autograd notes of a tensor."""


@dataclass(frozen=True, slots=True)
class Part:
    """Consecutive nodes as a graph of their own, which takes and gives the values of these names."""

    module: fx.GraphModule
    takes: tuple[str, ...]
    gives: tuple[str, ...]
    is_eager: bool


def units_of(graph: fx.Graph) -> list[Unit]:
    """The units of a graph, in its order."""
    units: list[list[fx.Node]] = []
    makers: dict[fx.Node, list[fx.Node]] = {}
    depth = 0
    for node in graph.nodes:
        if node.op in ("placeholder", "output", "get_attr"):
            continue
        maker = makers.get(node.args[0]) if node.target is operator.getitem else None
        if maker is not None:
            maker.append(node)
        elif depth:
            units[-1].append(node)
        else:
            units.append([node])
        if isinstance(node.meta.get("example_value"), (tuple, list)):
            makers[node] = maker or units[-1]
        depth += _ends_with(node, OPENS) - _ends_with(node, CLOSES)
    return [tuple(unit) for unit in units]


def _ends_with(node: fx.Node, names: tuple[str, ...]) -> bool:
    return str(getattr(node.target, "__name__", node.target)).endswith(names)


def contexts(units: Sequence[Unit]) -> set[int]:
    """The units that switch a mode, and those that make or take what no part can give to another, as the state of an
    autocast that is entered. A part is compiled for the mode in which it begins."""
    owner = {node: index for index, unit in enumerate(units) for node in unit}
    found = {index for index, unit in enumerate(units) if is_switch(unit[0])}
    for index, unit in enumerate(units):
        for node in unit:
            readers = {owner[user] for user in node.users if owner.get(user, index) != index}
            if readers and not _can_pass(node.meta.get("example_value")):
                found |= {index, *readers}
    return found


def is_switch(node: fx.Node) -> bool:
    """Whether a node computes nothing, but changes how eager runs what follows."""
    return getattr(node.target, "__name__", "") in SWITCHES


def _can_pass(value: object) -> bool:
    return value is not None and all(isinstance(leaf, PASSED) for leaf in pytree.tree_leaves(value))


def foreign(units: Sequence[Unit], inputs: Iterable[tuple[fx.Node, object]]) -> set[int]:
    """The units that take or make tensors of which no kernel knows the memory: of a subclass, or sparse."""
    known = {node: _is_foreign(value) for node, value in inputs}
    for unit in units:
        known.update((node, _is_foreign(node.meta.get("example_value"))) for node in unit)
    return {
        index
        for index, unit in enumerate(units)
        if any(known.get(node) or any(known.get(read) for read in node.all_input_nodes) for node in unit)
    }


def _is_foreign(value: object) -> bool:
    tensors = (leaf for leaf in pytree.tree_leaves(value) if isinstance(leaf, torch.Tensor))
    return any(is_traceable_wrapper_subclass(tensor) or tensor.layout is not torch.strided for tensor in tensors)


def divided(gm: fx.GraphModule, units: Sequence[Unit], in_eager: set[int]) -> list[Part]:
    """A graph that holds no tensors as parts: eager's units, and the longest runs of the others."""
    runs: list[list[fx.Node]] = []
    kinds: list[bool] = []
    for index, unit in enumerate(units):
        if not kinds or kinds[-1] != (index in in_eager):
            runs.append([])
            kinds.append(index in in_eager)
        runs[-1] += unit
    return [part_of(gm, run, is_eager) for run, is_eager in zip(runs, kinds, strict=True)]


def first_units(gm: fx.GraphModule, units: Sequence[Unit]) -> fx.GraphModule:
    """The graph of these units alone, which returns all that is read after them."""
    return part_of(gm, [node for unit in units for node in unit], False).module


def part_of(gm: fx.GraphModule, nodes: Sequence[fx.Node], is_eager: bool) -> Part:
    """Some nodes as a graph of their own, which gives all that others read."""
    graph, copies = fx.Graph(), dict[fx.Node, fx.Node]()
    own = set(nodes)
    reads = dict.fromkeys(read for node in nodes for read in node.all_input_nodes if read not in own)
    takes = [read for read in reads if read.op != "get_attr"]  # the graph holds functions, but no tensors
    for read in takes:
        copies[read] = graph.placeholder(read.name)
        copies[read].meta = {"example_value": read.meta.get("example_value")}
    for read in reads:
        if read not in copies:
            copies[read] = graph.node_copy(read)
    for node in nodes:
        copies[node] = graph.node_copy(node, copies.__getitem__)
    gives = [node for node in nodes if any(user not in own for user in node.users)]
    graph.output(tuple(copies[node] for node in gives))
    names = tuple(node.name for node in takes), tuple(node.name for node in gives)
    return Part(fx.GraphModule(gm, graph), *names, is_eager)


def is_submodule(gm: fx.GraphModule, node: fx.Node) -> bool:
    """Whether a node names a graph inside the graph, as that of a branch or of a region."""
    return node.op == "get_attr" and isinstance(held(gm, node), torch.nn.Module)


def without_held(gm: fx.GraphModule, own: Sequence[fx.Node]) -> tuple[fx.GraphModule, dict[fx.Node, fx.Node]]:
    """The graph with the tensors that it holds, named by these nodes, as arguments after its own; and its nodes by
    those of the graph."""
    graph, copies = fx.Graph(), dict[fx.Node, fx.Node]()
    given = {str(node.target): node for node in own}
    placeholders = [node for node in gm.graph.nodes if node.op == "placeholder"]
    for node in placeholders:
        copies[node] = graph.node_copy(node)
    added = {name: graph.placeholder(node.name) for name, node in given.items()}
    for name, node in given.items():
        added[name].meta = dict(node.meta)
    for node in gm.graph.nodes:
        if node.op == "get_attr" and str(node.target) in added:
            copies[node] = added[str(node.target)]
        elif node.op != "placeholder":
            copies[node] = graph.node_copy(node, copies.__getitem__)
    return fx.GraphModule(gm, graph), copies
