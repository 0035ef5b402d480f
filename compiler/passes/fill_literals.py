"""A number that a program writes down as a tensor is made on the GPU that reads it, not copied there by each call.

    torch.tensor(0.0, device="cuda"), recorded as _to_copy(lift_fresh_copy(literal), device="cuda")
    x[:, 0] = 3,                      recorded as fill(x[:, 0], lift_fresh_copy(literal))
    ->   full([], 0.0, dtype=float32, device="cuda") in the place of lift_fresh_copy(literal)

The copy waits for the host, and no CUDA graph can be recorded of it; the number becomes part of the kernels that read
it. Literals of several elements stay, and those that are read as another dtype: a GPU may round them otherwise.
"""

from __future__ import annotations

import math
import operator
from typing import Any

import torch
from torch import fx

from assay.compiler.ir.graph.calls import put_in_place
from assay.compiler.ir.graph.roles import Program
from assay.compiler.ir.graph.trace import eliminate_dead_nodes

aten = torch.ops.aten

DEVICE = "cuda"
MOST = 1 << 63
"""Whole numbers from here on are no scalars of ATen's."""


def fill_literals(program: Program) -> int:
    """Returns the number of literals that are made where they are read."""
    graph, filled = program.module.graph, 0
    for node in graph.find_nodes(op="call_function", target=aten.lift_fresh_copy.default):
        number, device = _number(program, node), _device(node)
        if number is not None and device is not None:
            _fill(node, number, device)
            filled += 1
    if filled:
        eliminate_dead_nodes(graph)
    return filled


def _number(program: Program, node: fx.Node) -> float | None:
    """The one number of a literal that nothing else can reach; None for any other."""
    source: Any = node.args[0]
    if source.op != "get_attr" or any(user.target is not aten.lift_fresh_copy.default for user in source.users):
        return None
    literal = operator.attrgetter(str(source.target))(program.module)
    if not isinstance(literal, torch.Tensor) or literal.device.type != "cpu" or literal.dtype.is_complex:
        return None
    if literal.numel() != 1 or literal.stride() != torch.empty(literal.shape, device="meta").stride():
        return None
    number = literal.item()
    return number if isinstance(number, bool) or (math.isfinite(number) and abs(number) < MOST) else None


def _device(node: fx.Node) -> torch.device | None:
    """The GPU that all readers of a literal compute on, as numbers of its dtype; None where there is no such."""
    values = [value for user in node.users for value in torch.utils._pytree.tree_leaves(user.meta.get("val"))]
    if any(user.op == "output" or _converts(user, node) for user in node.users):
        return None
    if not values or not all(isinstance(value, torch.Tensor) for value in values):  # who asks for the number itself
        return None
    devices = {value.device for value in values}
    return values[0].device if len(devices) == 1 and values[0].device.type == DEVICE else None


def _converts(user: fx.Node, node: fx.Node) -> bool:
    return user.target is aten._to_copy.default and user.meta["val"].dtype is not node.meta["val"].dtype


def _fill(node: fx.Node, number: float, device: torch.device) -> None:
    value = node.meta["val"]
    with node.graph.inserting_before(node):
        made = node.graph.call_function(
            aten.full.default, (list(value.shape), number), {"dtype": value.dtype, "device": device}
        )
    made.meta = dict(node.meta)
    with value.fake_mode:
        made.meta["val"] = torch.empty(value.shape, dtype=value.dtype, device=device)
    put_in_place(made, node, is_moved=True)
