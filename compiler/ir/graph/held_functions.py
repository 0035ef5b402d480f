"""Operators that take functions, as `cond` and `scan` do: nodes whose functions are graphs inside the graph.

    y = cond(p, lambda a: a.sin(), lambda a: a.cos(), (x,))
->  cond = torch.ops.higher_order.cond(p, true_graph_0, false_graph_0, (x,)); y = cond[0]
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch._higher_order_ops  # which registers them
from torch import fx

from assay.compiler.ir.typed_nodes import node_argument

HELD_FUNCTIONS: frozenset[torch._ops.HigherOrderOperator] = frozenset(
    getattr(torch.ops.higher_order, name)
    for name in (
        *("cond", "while_loop", "while_loop_stack_output", "scan", "map_impl", "associative_scan"),
        *("flex_attention", "flex_attention_backward", "invoke_subgraph"),
        *("strict_mode", "hints_wrapper", "out_dtype", "invoke_quant", "invoke_quant_packed"),
    )
    if hasattr(torch.ops.higher_order, name)
)
"""The operators whose functions a graph can hold."""
IS_PURE = "is_pure"
"""Marks, in the metadata of a node that calls one, that no function that it is given has an effect."""
IS_COMPILED = "is_compiled"
"""Marks, in the metadata of a node that calls one, that its functions are compiled, and counted, by themselves."""


REGION: Any = getattr(torch.ops.higher_order, "invoke_subgraph", None)
"""The call of a region. Its backward computes the region again until each region is split (`entry/ahead`)."""
STACKED: object = getattr(torch.ops.higher_order, "while_loop_stack_output", None)


def is_end_of_loop(node: fx.Node) -> bool:
    """Whether a value is the last of what a loop has carried, all of which it stacks for its backward."""
    stack = node.args[0] if node.target is torch.ops.aten.select.int else None
    return isinstance(stack, fx.Node) and stack.target is operator.getitem and node_argument(stack, 0).target is STACKED


def functions_of(node: fx.Node, root: torch.nn.Module) -> Iterator[fx.GraphModule]:
    """The graphs that a call is given as functions; `root` is the module that holds them."""
    for read in node.all_input_nodes:
        found = getattr(root, str(read.target), None) if read.op == "get_attr" else None
        if isinstance(found, fx.GraphModule):
            yield found


def nodes_inside(node: fx.Node, root: torch.nn.Module) -> Iterator[fx.Node]:
    """The nodes of the functions of a call, and those of the functions that these call."""
    for function in functions_of(node, root):
        for inner in function.graph.nodes:
            yield inner
            yield from nodes_inside(inner, function)


def is_any_inside(node: fx.Node, root: torch.nn.Module, holds: Callable[[fx.Node], bool]) -> bool:
    """Whether it holds of a call in a function of a node. A call of a function holds what the function does."""
    calls = (inner for inner in nodes_inside(node, root) if inner.op == "call_function")
    return any(holds(inner) for inner in calls if inner.target not in HELD_FUNCTIONS)
