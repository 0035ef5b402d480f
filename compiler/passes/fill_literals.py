"""A number that a program writes down as a tensor of a GPU is filled in there, not copied from the host by each call.

    torch.tensor(0.0, device="cuda"), recorded as _to_copy(lift_fresh_copy(literal), device="cuda")
    ->   full([], 0.0, dtype=float32, device="cuda")

The copy waits for the host, and no CUDA graph can be recorded of it; the number becomes part of the kernels that read
it. Literals of several elements stay.
"""

from __future__ import annotations

import math
import operator
from typing import Any

import torch
from torch import fx

from compiler.ir.roles import Program
from compiler.ir.trace import eliminate_dead_nodes
from compiler.passes.calls import put_in_place

aten = torch.ops.aten
MOST = 1 << 63
"""Whole numbers from here on are no scalars of ATen's."""


def fill_literals(program: Program) -> int:
    """Returns the number of copies that became fills."""
    graph, filled = program.module.graph, 0
    for node in graph.find_nodes(op="call_function", target=aten._to_copy.default):
        number = _number(program, node)
        if number is not None:
            _fill(node, number)
            filled += 1
    if filled:
        eliminate_dead_nodes(graph)
    return filled


def _number(program: Program, node: fx.Node) -> float | None:
    """The one number of a literal that is copied to another device as it is; None for any other copy."""
    lifted = node.args[0]
    if not isinstance(lifted, fx.Node) or lifted.target is not aten.lift_fresh_copy.default:
        return None
    source: Any = lifted.args[0]
    if source.op != "get_attr" or any(user.target is not aten.lift_fresh_copy.default for user in source.users):
        return None
    literal, value = operator.attrgetter(str(source.target))(program.module), node.meta["val"]
    if not isinstance(literal, torch.Tensor) or literal.numel() != 1 or literal.dtype.is_complex:
        return None
    if literal.dtype is not value.dtype or value.device == literal.device or value.stride() != literal.stride():
        return None
    number = literal.item()
    return number if isinstance(number, bool) or (math.isfinite(number) and abs(number) < MOST) else None


def _fill(node: fx.Node, number: float) -> None:
    value = node.meta["val"]
    with node.graph.inserting_before(node):
        made = node.graph.call_function(
            aten.full.default, (list(value.shape), number), {"dtype": value.dtype, "device": value.device}
        )
    made.meta = dict(node.meta)
    put_in_place(made, node)
