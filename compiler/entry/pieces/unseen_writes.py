"""Writes that autograd does not learn of, as they go through `.data`, and the units that they concern.

    y = x.sin(); x.data.add_(1)         backward reads x as it is then: eager has kept x, and not a copy

Parts of a graph keep other tensors than eager does. So all that reads or makes such memory runs in eager.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator, Mapping, Sequence

import torch
from torch import fx
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from assay.compiler.capture.inputs import held
from assay.compiler.entry.pieces.parts import Unit, is_submodule, is_switch

Memory = frozenset[object]

WRITING_OPERATORS = frozenset(name for name in dir(operator) if name.startswith("i")) | {"setitem", "delitem"}
"""Names of Python's operators that write their first operand, as `iadd`; `invert` and the like are among them."""
WRITING_NORMS = ("batch_norm", "batch_norm_legit", "instance_norm")
"""Ends of names of functions that write running statistics."""
INPUTS = "inputs"
"""Names the memory of all inputs, where it is not known which of them share some."""
UNKNOWN: Memory = frozenset([None])
"""The memory of a value of which nothing is known."""


def has_unseen_writes(gm: fx.GraphModule, leaves: Sequence[object]) -> bool:
    """Whether a graph called with these may write through `.data` what a backward reads."""
    return _may_record(gm.graph, leaves) and bool(_writers(gm))


def units_of_unseen_writes(
    gm: fx.GraphModule, units: Sequence[Unit], leaves: Sequence[object], overlap: bool
) -> set[int]:
    """The units of a graph, called with these, that read or make memory which may be written unseen.

    The leaves share memory as they do now if they `overlap`; else a later call may give others, so any input may.
    """
    writers = _writers(gm) if _may_record(gm.graph, leaves) else []
    if not writers:
        return set()
    memory = _memories(gm.graph, leaves, overlap)
    written = frozenset[object]().union(*(_touched(node, memory) for node in writers))
    return {index for index, unit in enumerate(units) if any(_touched(node, memory) & written for node in unit)}


def _writers(gm: fx.GraphModule) -> list[fx.Node]:
    """What `.data` gives where it may be written, and calls of graphs inside the graph in which that is so."""
    found = [node for node in gm.graph.nodes if getattr(node.target, "__name__", "") == "_get_data_attr"]
    return [node for node in found if _is_written(node)] + [
        node
        for node in gm.graph.nodes
        if any(_writes_inside(held(gm, read)) for read in node.all_input_nodes if is_submodule(gm, read))
    ]


def _writes_inside(module: object) -> bool:
    return isinstance(module, fx.GraphModule) and bool(_writers(module))


def _touched(node: fx.Node, memory: Mapping[fx.Node, Memory]) -> Memory:
    """The memory that a node reads or makes; of a value of which nothing is known, it may be any."""
    return memory[node].union(*(memory[read] for read in node.all_input_nodes))


def _memories(graph: fx.Graph, leaves: Sequence[object], overlap: bool) -> dict[fx.Node, Memory]:
    """By each node of a graph, which memory its value has. Names of memory are storages of recorded values, and of
    inputs one that stands for all with which they may share theirs."""
    names: dict[object, object] = {}
    for node, leaf in zip(graph.find_nodes(op="placeholder"), leaves, strict=True):
        for storage, real in zip(_storages(node.meta.get("example_value")), _storages(leaf), strict=False):
            names[storage] = real if overlap else INPUTS
    found: dict[fx.Node, Memory] = {}
    for node in graph.nodes:
        value = node.meta.get("example_value")
        found[node] = frozenset(names.get(storage, storage) for storage in _storages(value))
        if value is None and node.op not in ("get_attr", "output") and node.users:
            found[node] = UNKNOWN
    every = frozenset[object]().union(*found.values())
    return {node: every if UNKNOWN <= memory else memory for node, memory in found.items()}


def _storages(value: object) -> Iterator[object]:
    """The storages of the tensors in a value, which views of a tensor share; None for one that has no such storage."""
    for leaf in pytree.tree_leaves(value):
        if isinstance(leaf, torch.Tensor):
            is_plain = leaf.layout is torch.strided and not is_traceable_wrapper_subclass(leaf)
            yield leaf.untyped_storage()._cdata if is_plain else None


def _is_written(alias: fx.Node) -> bool:
    """Whether an alias or what is computed of it may be written."""
    pending, readers = [alias], set[fx.Node]()
    while pending:
        found = pending.pop().users.keys() - readers
        readers |= found
        pending += found
    return any(map(may_write, readers))


def _may_record(graph: fx.Graph, leaves: Sequence[object]) -> bool:
    """Whether autograd may record what the graph does with these."""
    may_record = torch.is_grad_enabled() or any(map(is_switch, graph.nodes))
    return may_record and any(isinstance(leaf, torch.Tensor) and leaf.requires_grad for leaf in leaves)


def may_write(node: fx.Node) -> bool:
    """Whether a node may write one of its arguments. Methods and functions of torch's that are not in place write
    nothing, nor do most of Python's operators; of any other function nothing is known."""
    if node.op == "output" or node.target is getattr:
        return False
    name = node.target if node.op == "call_method" else getattr(node.target, "__name__", "")
    if not isinstance(name, str) or name.endswith("_") or "out" in node.kwargs:
        return True
    if node.op == "call_method":
        return False
    if getattr(operator, name, None) is node.target:
        return name in WRITING_OPERATORS
    return getattr(torch._C._VariableFunctions, name, None) is not node.target or name.endswith(WRITING_NORMS)
