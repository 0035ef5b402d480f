"""The nodes of a graph that take wrappers apart and put them together (`ir/tensors/wrappers.py`)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch import fx

from assay.compiler.ir.graph.roles import Program
from assay.compiler.ir.tensors.wrappers import Recipe, inner_tensor, is_wrapper
from assay.compiler.ir.typed_nodes import node_argument, value_of

FIRST_INNER = 2
"""Where the inner tensors begin among the arguments of a recipe: after the size and the stride."""


def has_wrappers(program: Program) -> bool:
    """Whether a graph takes or makes wrappers."""
    nodes = program.module.graph.nodes
    return any(makes_wrapper(node) or (node.op == "placeholder" and is_wrapper(value_of(node))) for node in nodes)


def makes_wrapper(node: fx.Node) -> bool:
    """Whether a node puts a wrapper together."""
    return isinstance(node.target, Recipe)


def wrapper_behind(node: fx.Node) -> fx.Node | None:
    """The wrapper of which a node takes an inner tensor; None for any other node."""
    return node_argument(node, 0) if node.target is inner_tensor else None


def is_given(node: fx.Node) -> bool:
    """Whether a node is a tensor that the call is given, or an inner one of a wrapper that it is given."""
    return node.op == "placeholder" or node.target is inner_tensor


def inner_nodes(node: fx.Node) -> tuple[fx.Node, ...]:
    """The inner tensors of a wrapper that is put together, in the order of its recipe."""
    given: Any = node.args
    return tuple(given[FIRST_INNER:])


def parts_of(node: fx.Node) -> Iterator[fx.Node]:
    """The plain values of which a wrapper is put together, of nested ones too; else the node itself."""
    if not makes_wrapper(node):
        yield node
        return
    for inner in inner_nodes(node):
        yield from parts_of(inner)
