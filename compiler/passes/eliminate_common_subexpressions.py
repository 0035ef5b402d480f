"""Makes equal calls one: same operator, same arguments, no randomness, no effect.

    a = exp(x); b = exp(x); c = add(a, b)   ->   a = exp(x); c = add(a, a)

Two results of the program must stay two tensors, so a call that is returned is never merged away (law: the alias graph
of the outputs is kept).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator

import torch
from torch import fx

from assay.compiler.ir.graph.constant_zeros import ZEROS_OF
from assay.compiler.ir.graph.replacement import replace_node
from assay.compiler.ir.graph.roles import Program
from assay.compiler.ir.graph.trace import has_effect, producer


def eliminate_common_subexpressions(program: Program) -> int:
    """Returns the number of calls merged into an earlier one."""
    graph = program.module.graph
    returned = {node for result in program.returned if isinstance(result, fx.Node) for node in _memory_of(result)}
    seen: dict[Hashable, fx.Node] = {}
    merged = 0
    for node in list(graph.nodes):
        if node.op != "call_function" or has_effect(node) or node in returned:
            continue
        key = _key(node)
        first = seen.setdefault(key, node) if key is not None else node
        if first is not node:
            replace_node(node, first)
            graph.erase_node(node)
            merged += 1
    return merged


def _memory_of(node: fx.Node) -> Iterator[fx.Node]:
    """A value and the calls through which it has the memory that it lies in."""
    while True:
        yield node
        node, _ = producer(node)
        yield node
        is_alias = isinstance(node.target, torch._ops.OpOverload) and (node.target.is_view or node.target in ALIASES)
        if not is_alias or not isinstance(node.args[0], fx.Node):
            return
        node = node.args[0]


ALIASES = (torch.ops.aten._unsafe_view.default,)
"""Calls whose result lies in their argument's memory although their schema does not say so."""


def _key(node: fx.Node) -> Hashable | None:
    """What makes two calls equal, or None for arguments that cannot be compared."""
    key = (node.target, _freeze(node.args), _freeze(node.kwargs), node.meta.get(ZEROS_OF))
    try:
        hash(key)
    except TypeError:
        return None
    return key


def _freeze(value: object) -> Hashable:
    """Arguments as a hashable value in which 1, 1.0 and True differ, as do 0.0 and -0.0."""
    if isinstance(value, (list, tuple)):
        return (type(value).__name__, *(_freeze(item) for item in value))
    if isinstance(value, dict):
        return tuple((name, _freeze(item)) for name, item in sorted(value.items()))
    if isinstance(value, slice):
        return ("slice", _freeze(value.start), _freeze(value.stop), _freeze(value.step))
    if isinstance(value, float):
        return ("float", value.hex())
    if isinstance(value, (bool, int)):
        return (type(value).__name__, value)
    return value
