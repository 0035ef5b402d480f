"""Takes dropout apart into the mask that it draws and a product, so that only the mask has to be kept for backward.

    v, m = native_dropout(x, p, True)     ->     m = bernoulli(empty_like(x, bool), 1 - p); v = x * m * s

with s = 1 / (1 - p) in the dtype of x.

The product is a byte read for each element in whatever kernel reads it, and `v` is made again from `x` where that is
cheaper than to keep it. These are the operations, the numbers drawn and the roundings of ATen's kernel. It draws in
the order of memory, `bernoulli` in that of the elements: so `x` must be contiguous. Programs with symbolic sizes stay
as they are: their gradients of gradients are recorded with numbers in place of these, and must find the same calls.
"""

from __future__ import annotations

import operator

import torch
from torch import fx

from compiler.ir.roles import Program
from compiler.ir.strides import has_symbols
from compiler.passes.calls import call_for

aten = torch.ops.aten


def split_dropout(program: Program) -> int:
    """Returns the number of dropouts taken apart."""
    if any(has_symbols(node.meta.get("val")) for node in program.placeholders):
        return 0
    calls = program.module.graph.find_nodes(op="call_function", target=aten.native_dropout.default)
    chosen = [node for node in calls if _is_splittable(node)]
    for node in chosen:
        _split(node)
    return len(chosen)


def _is_splittable(node: fx.Node) -> bool:
    x, share, train = node.args
    value = x.meta["val"]  # type: ignore[union-attr]
    if train is False or not 0 <= share < 1 or not value.is_floating_point() or value.device.type != "cpu":  # type: ignore[operator]
        return False
    is_known = all(isinstance(size, int) for size in (*value.shape, *value.stride()))
    return is_known and value.is_contiguous() and all(user.target is operator.getitem for user in node.users)


def _split(node: fx.Node) -> None:
    x, share, _ = node.args
    keep = 1.0 - share  # type: ignore[operator]
    scale = torch.tensor(1.0 / keep, dtype=node.meta["val"][0].dtype).item()
    with node.graph.inserting_before(node):
        mask = call_for(node, aten.bernoulli.p, call_for(node, aten.empty_like.default, x, dtype=torch.bool), keep)
        value = call_for(node, aten.mul.Tensor, call_for(node, aten.mul.Tensor, x, mask), scale)
    for part in list(node.users):
        part.replace_all_uses_with((value, mask)[part.args[1]])  # type: ignore[index]
        node.graph.erase_node(part)
    node.graph.erase_node(node)
