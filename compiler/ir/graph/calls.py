"""New calls in a graph, with what is known of their results."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import torch
from torch import fx
from torch._dispatch.python import enable_python_dispatcher
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils import _pytree as pytree

from assay.compiler.ir.graph.replacement import replace_node
from assay.compiler.ir.graph.trace import autocast_off

Size: TypeAlias = int | torch.SymInt | fx.Node


def called(target: Callable[..., Any], first: Any, *args: Any, **kwargs: Any) -> fx.Node:
    """A call at the insertion point of the graph of its first argument."""
    made: fx.Node = first.graph.call_function(target, (first, *args), kwargs)
    given, named = fx.node.map_arg((made.args, made.kwargs), lambda read: read.meta["val"])
    if target in (operator.getitem, operator.mul):
        made.meta["val"] = target(*given)
        return made
    fake = next(value for value in pytree.tree_leaves(given) if isinstance(value, FakeTensor))
    with fake.fake_mode, autocast_off(), enable_python_dispatcher():  # as recordings do
        made.meta["val"] = target(*given, **named)
    return made


def call_for(node: fx.Node, target: Callable[..., Any], first: Any, *args: Any, **kwargs: Any) -> fx.Node:
    """A call that does part of what `node` does, and is told to come from where it does."""
    made = called(target, first, *args, **kwargs)
    made.meta = {**node.meta, "val": made.meta["val"]}
    return made


def put_in_place(made: fx.Node, node: fx.Node, *, is_moved: bool = False) -> None:
    """Gives a node's readers and its name to another that was made for it, and takes it out of its graph. `is_moved`
    where it was made on another device."""
    name = node.name
    replace_node(node, made, is_moved=is_moved)
    node.graph.erase_node(node)
    made.name = name


def written_sizes(graph: fx.Graph, values: Sequence[int | torch.SymInt]) -> list[Size]:
    """Sizes as arguments of a call: numbers, and nodes that compute symbolic ones from the inputs' sizes.

    The nodes stand before all calls. What is no product of the inputs' sizes stays as it is.
    """
    first = next(node for node in graph.nodes if node.op != "placeholder")
    with graph.inserting_before(first):
        given = _sizes_given(graph)
        return [value if isinstance(value, int) else _computed(value.node.expr, given) or value for value in values]


def _sizes_given(graph: fx.Graph) -> dict[Any, Callable[[], fx.Node]]:
    """What makes a node of each size of the inputs, by its expression."""
    found: dict[Any, Callable[[], fx.Node]] = {}
    for node in graph.nodes:
        value = node.meta.get("val") if node.op == "placeholder" else None
        if isinstance(value, torch.SymInt):
            found[value.node.expr] = functools.partial(_itself, node)
        for dim, size in enumerate(value.shape if isinstance(value, torch.Tensor) else ()):
            if isinstance(size, torch.SymInt):
                ask = functools.partial(called, torch.ops.aten.sym_size.int, node, dim)
                found.setdefault(size.node.expr, functools.cache(ask))
    return found


def _itself(node: fx.Node) -> fx.Node:
    return node


def _computed(expr: Any, given: dict[Any, Callable[[], fx.Node]]) -> fx.Node | None:
    """A node for a size, or for a product of sizes and numbers; None for anything else."""
    if expr in given:
        return given[expr]()
    factors = expr.args if expr.is_Mul else ()
    if not factors or not all(factor in given or factor.is_Integer for factor in factors):
        return None
    numbers = [int(factor) for factor in factors if factor.is_Integer]
    made, *rest = [given[factor]() for factor in factors if not factor.is_Integer]
    return functools.reduce(functools.partial(called, operator.mul), [*rest, *numbers], made)
