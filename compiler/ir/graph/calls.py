"""New calls in a graph, with what is known of their results."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from torch import fx
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils import _pytree as pytree

from compiler.ir.graph.replacement import replace_node


def called(target: Callable[..., Any], first: Any, *args: Any, **kwargs: Any) -> fx.Node:
    """A call at the insertion point of the graph of its first argument."""
    made: fx.Node = first.graph.call_function(target, (first, *args), kwargs)
    given, named = fx.node.map_arg((made.args, made.kwargs), lambda read: read.meta["val"])
    if target in (operator.getitem, operator.mul):
        made.meta["val"] = target(*given)
        return made
    with next(value for value in pytree.tree_leaves(given) if isinstance(value, FakeTensor)).fake_mode:
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
