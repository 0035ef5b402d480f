"""Takes dropout apart into the mask that it draws and a product, so that only the mask has to be kept for backward.

    v, m = native_dropout(x, p, True)     ->     m = bernoulli(empty_like(x, bool), 1 - p); v = x * m * s

with s = 1 / (1 - p) in the dtype of x. On a GPU

    k = reserve_numbers([calls of m, of the next one, ...])
    m = dropout_mask(k[0], ...); v = native_dropout_backward(x, m, s)

where the mask is a function of two numbers. One call takes them from the generator, for all dropouts up to the next
attention that draws. They are ATen's numbers, and nothing is kept of the mask. ATen's dropout stays beside other
operators that draw and can be recorded in a CUDA graph, so that they still can.

The product is a byte read for each element in whatever kernel reads it, and `v` is made again from `x` where that is
cheaper than to keep it. These are the operations, the numbers drawn and the roundings of ATen's kernel. It draws in
the order of memory, `bernoulli` in that of the elements, so `x` must be contiguous. Programs with symbolic sizes stay
as they are. Their gradients of gradients are recorded with numbers in place of these, and must find the same calls.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass

import numpy as np
import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensor

from assay.compiler.ir.graph.calls import call_for, called
from assay.compiler.ir.graph.replacement import replace_node
from assay.compiler.ir.graph.roles import Program
from assay.compiler.ir.graph.trace import is_random
from assay.compiler.ir.tensors.layout.strides import has_symbols
from assay.compiler.ir.typed_nodes import fake_value, float_argument, int_argument, node_argument, schema_of
from assay.compiler.ops.calls.drawn_numbers import Launch, dropout_mask, launch_of, limit_of, reserve_numbers

aten = torch.ops.aten


def split_dropout(program: Program) -> int:
    """Returns the number of dropouts taken apart."""
    if any(has_symbols(node.meta.get("val")) for node in program.placeholders):
        return 0
    count, dropouts = 0, list[_Dropout]()
    draws = [node for node in program.module.graph.nodes if node.op == "call_function" and is_random(node)]
    is_alone = all(node.target is aten.native_dropout.default or _is_attention(node) for node in draws)
    for node in draws:
        is_dropout = node.target is aten.native_dropout.default
        if is_dropout and _is_splittable(node):
            _split(node)
            count += 1
        elif is_dropout and is_alone and (dropout := _drawn(node)) is not None:
            if dropouts and dropouts[-1].value.device != dropout.value.device:
                count += _draw(dropouts)
            dropouts.append(dropout)
        else:
            count += _draw(dropouts)
    return count + _draw(dropouts)


def _is_attention(node: fx.Node) -> bool:
    return any(argument.name == "dropout_p" for argument in schema_of(node.target).arguments)


def is_taken_apart(node: fx.Node) -> bool:
    """Whether all that the call says and all that reads it is known."""
    value, train = fake_value(node_argument(node, 0)), node.args[2]
    if train is False or not 0 <= float_argument(node, 1) < 1 or not value.is_floating_point():
        return False
    is_known = all(isinstance(size, int) for size in (*value.shape, *value.stride()))
    return is_known and value.is_contiguous() and all(user.target is operator.getitem for user in node.users)


def _is_splittable(node: fx.Node) -> bool:
    return fake_value(node_argument(node, 0)).device.type == "cpu" and is_taken_apart(node)


def _split(node: fx.Node) -> None:
    x, keep = node_argument(node, 0), 1.0 - float_argument(node, 1)
    scale = torch.tensor(1.0 / keep, dtype=node.meta["val"][0].dtype).item()
    with node.graph.inserting_before(node):
        mask = call_for(node, aten.bernoulli.p, call_for(node, aten.empty_like.default, x, dtype=torch.bool), keep)
        value = call_for(node, aten.mul.Tensor, call_for(node, aten.mul.Tensor, x, mask), scale)
    replace_parts(node, value, mask)


def replace_parts(node: fx.Node, value: fx.Node, mask: fx.Node) -> None:
    """Puts the result and the mask of a dropout in its place."""
    for part in list(node.users):
        replace_node(part, (value, mask)[int_argument(part, 1)])
        node.graph.erase_node(part)
    node.graph.erase_node(node)


# ---- on a GPU --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Dropout:
    """A call of dropout, and what ATen would launch for it."""

    node: fx.Node
    launch: Launch

    @property
    def value(self) -> FakeTensor:
        return fake_value(node_argument(self.node, 0))


def _drawn(node: fx.Node) -> _Dropout | None:
    value, share = fake_value(node_argument(node, 0)), node.args[1]
    if value.device.type != "cuda" or share == 0 or value.numel() == 0 or not is_taken_apart(node):
        return None
    launch = launch_of(value)
    return None if launch is None else _Dropout(node, launch)


def _draw(dropouts: list[_Dropout]) -> int:
    """Takes dropouts that follow each other apart; returns their number, and empties the list."""
    if not dropouts:
        return 0
    keys = _reserve(dropouts)
    for position, dropout in enumerate(dropouts):
        node, value, launch = dropout.node, dropout.value, dropout.launch
        keep = float(1.0 - float_argument(node, 1))
        scale = 1.0 / (keep if value.dtype is torch.float64 else float(np.float32(keep)))
        with node.graph.inserting_before(node):
            key, limit = called(aten.select.int, keys, 0, position), limit_of(keep, value.dtype)
            mask = call_for(node, dropout_mask, key, list(value.shape), limit, launch.threads, launch.width)
            product = call_for(node, aten.native_dropout_backward.default, node.args[0], mask, scale)
        replace_parts(node, product, mask)
    count = len(dropouts)
    dropouts.clear()
    return count


def _reserve(dropouts: list[_Dropout]) -> fx.Node:
    node, value = dropouts[0].node, dropouts[0].value
    with node.graph.inserting_before(node):
        keys = node.graph.call_function(reserve_numbers, ([each.launch.calls for each in dropouts], value.device))
    with value.fake_mode:
        keys.meta["val"] = torch.empty(len(dropouts), 2, dtype=torch.int64, device=value.device)
    return keys
