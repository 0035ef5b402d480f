"""On a GPU the bias of a convolution is added by the kernel that reads what the convolution gives.

    y = convolution(x, w, b, ...)   ->   y = convolution(x, w, None, ...) + b[:, None, None]
    dx, dw, db = convolution_backward(g, x, w, ...)   ->   db = sum of g over all but its channels;   dx, dw, _ = ...

cuDNN adds none. ATen does it, by a kernel that reads and writes the whole image again, and sums the gradient by
another. On an H200 that is 4 us of each of the 22 convolutions of ConvNeXt, and 14 us of those of SegFormer.

Rounding: another order of the sums of `db`; the sum with `b` is ATen's. Must run after `convolve_channels_last`, which
knows convolutions with their biases.
"""

from __future__ import annotations

import operator
from typing import Any, cast

import torch
from torch import fx

from assay.compiler.ir.graph.calls import call_for
from assay.compiler.ir.graph.replacement import replace_node
from assay.compiler.ir.graph.roles import Program

aten = torch.ops.aten

DEVICE = "cuda"


def add_biases(program: Program) -> int:
    """Returns the number of biases added, and of their gradients summed, apart."""
    graph = program.module.graph
    forward = [node for node in graph.find_nodes(op="call_function", target=aten.convolution.default) if _gains(node)]
    for node in forward:
        _add_apart(node)
    found = graph.find_nodes(op="call_function", target=aten.convolution_backward.default)
    backward = [node for node in found if _sums(node)]
    for node in backward:
        _sum_apart(node)
    return len(forward) + len(backward)


def _is_plain(value: Any) -> bool:
    return value.device.type == DEVICE and not value.dtype.is_complex and value.dim() > 2


def _gains(node: fx.Node) -> bool:
    value, bias = node.meta["val"], node.args[2]
    if not isinstance(bias, fx.Node) or not _is_plain(value):
        return False
    with value.fake_mode:
        summed = value + bias.meta["val"][(..., *[None] * (value.dim() - 2))]
    return bool(summed.stride() == value.stride() and summed.dtype is value.dtype)


def _add_apart(node: fx.Node) -> None:
    value, bias = node.meta["val"], cast(fx.Node, node.args[2])
    with node.graph.inserting_before(node):
        for _ in range(value.dim() - 2):
            bias = call_for(node, aten.unsqueeze.default, bias, -1)
    node.args = (*node.args[:2], None, *node.args[3:])
    with node.graph.inserting_after(node):
        made = call_for(node, aten.add.Tensor, node, bias)
    replace_node(node, made, lambda user: user is not made)


def _sums(node: fx.Node) -> bool:
    """Whether a backward gives the gradient of a bias as a value of its own, beside others."""
    wants = cast(Any, node.args[10])
    if not wants[2] or not any(wants[:2]) or not _is_plain(cast(Any, node.args[0]).meta["val"]):
        return False
    return all(user.target is operator.getitem for user in node.users)


def _sum_apart(node: fx.Node) -> None:
    gradient = cast(fx.Node, node.args[0])
    dims = [dim for dim in range(gradient.meta["val"].dim()) if dim != 1]
    with node.graph.inserting_before(node):
        made = call_for(node, aten.sum.dim_IntList, gradient, dims)
    node.args = (*node.args[:10], [*cast(Any, node.args[10])[:2], False])
    value = node.meta["val"]
    node.meta["val"] = type(value)((*value[:2], None))
    for part in list(node.users):
        if part.args[1] == 2:
            replace_node(part, made)
            node.graph.erase_node(part)
    if not made.users:
        node.graph.erase_node(made)
