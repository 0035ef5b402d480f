"""The weight gradient of a depthwise convolution, as the sums of products that it is, channels innermost.

    dx, dw, db = convolution_backward(g, x, w, groups=channels)
    ->   dw = sum over images and pixels of window(pad(x)) * g;   db = sum of g;   dx, _, _ = convolution_backward(...)

Where there is padding, `where(window(pad(ones)), window(pad(x)) * g, 0)`: a NaN of `g` meets no pixel there. With AVX2
alone, eager's library multiplies `g` with the zeros too where an image has fewer rows than the kernel; so does this.

oneDNN computes it in scratch memory for a convolution of all channels with all: 12.8 MB for 256 channels and windows of
7 x 7, where the gradient has 50 KB. On two cores, milliseconds (oneDNN, sums): 256 channels of 2 x 2 in batches of 4
0.26 and 0.10, 96 channels of 56 x 56 in batches of 2 14 and 2.2.

Rounding: other orders of the same float32 sums. Must run after `convolve_channels_last`, which gives images the layout
in which a kernel takes many channels side by side.
"""

from __future__ import annotations

import operator
from typing import Any, cast

import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensor

from assay.compiler.ir.graph.calls import call_for
from assay.compiler.ir.graph.replacement import replace_node
from assay.compiler.ir.graph.roles import Program
from assay.compiler.ir.tensors.layout.strides import is_by_channels

aten = torch.ops.aten


def sum_depthwise(program: Program) -> int:
    """Returns the number of weight gradients that became sums."""
    calls = program.module.graph.find_nodes(op="call_function", target=aten.convolution_backward.default)
    chosen = [node for node in calls if _is_suitable(node)]
    for node in chosen:
        _replace(node)
    return len(chosen)


def _is_suitable(node: fx.Node) -> bool:
    gradient, image, weight, _, _, padding, dilation, is_transposed, _, groups, wanted = cast(Any, node.args)
    g, x, w = (read.meta["val"] for read in (gradient, image, weight))
    if x.dim() != 4 or is_transposed or not wanted[1] or x.device.type != "cpu" or x.dtype is not torch.float32:
        return False
    if not all(isinstance(size, int) for size in (*g.shape, *x.shape)) or 0 in (*g.shape, *x.shape):
        return False
    is_depthwise = groups == x.shape[1] == w.shape[0] and w.shape[1] == 1
    is_plain = all(isinstance(size, int) for size in (*padding, *dilation)) and set(dilation) == {1}
    is_read_apart = all(user.target is operator.getitem for user in node.users)
    return is_depthwise and is_plain and is_read_apart and is_by_channels(x) and is_by_channels(g)


def _replace(node: fx.Node) -> None:
    gradient = cast(Any, node.args[0])
    with node.graph.inserting_before(node):
        made = {1: _weight_gradient(node)}
        if cast(Any, node.args[-1])[2]:  # the library computes both or none
            made[2] = call_for(node, aten.sum.dim_IntList, gradient, [0, 2, 3])
    for part in list(node.users):
        if part.args[1] in made and part.users:
            own = made[cast(int, part.args[1])]
            own.meta["val"] = _lying_as(own.meta["val"], part.meta["val"])
            replace_node(part, own)
        if not part.users:
            node.graph.erase_node(part)
    if node.users:
        node.args = (*node.args[:-1], [True, False, False])
        value = node.meta["val"]
        node.meta["val"] = type(value)(part if index == 0 else None for index, part in enumerate(value))
    else:
        node.graph.erase_node(node)


def _weight_gradient(node: fx.Node) -> fx.Node:
    gradient, image = cast(Any, node.args[:2])
    padding = cast(Any, node.args[5])
    for _ in range(3):
        gradient = call_for(node, aten.unsqueeze.default, gradient, 2)
    product = call_for(node, aten.mul.Tensor, _windows(node, image), gradient)
    rows, columns = image.meta["val"].shape[2:]
    is_low = rows < cast(Any, node.args[2]).meta["val"].shape[2]
    if any(padding) and not (is_low and torch.backends.cpu.get_cpu_capability() == "AVX2"):
        is_pixel = _windows(node, call_for(node, aten.new_ones.default, image, [1, 1, rows, columns], dtype=torch.bool))
        product = call_for(node, aten.where.ScalarOther, is_pixel, product, 0)
    return call_for(node, aten.sum.dim_IntList, product, [0, 5, 6])


def _windows(node: fx.Node, image: fx.Node) -> fx.Node:
    """The pixels that the elements of the kernel meet: `[n, c, h, w] -> [n, c, 1, kernel, kernel, rows, columns]`."""
    gradient, _, weight, _, steps, padding = cast(Any, node.args[:6])
    rows, columns = gradient.meta["val"].shape[2:]
    reach = [step * (size - 1) + 1 for step, size in zip(steps, (rows, columns), strict=True)]
    windows = call_for(node, aten.constant_pad_nd.default, image, [padding[1]] * 2 + [padding[0]] * 2)
    for dim, (length, kernel, step) in enumerate(zip(reach, weight.meta["val"].shape[2:], steps, strict=True), 2):
        windows = call_for(node, aten.unfold.default, windows, dim, length, 1)  # each shift is one of the kernel's
        windows = call_for(node, aten.slice.Tensor, windows, dim, 0, kernel)
        windows = call_for(node, aten.slice.Tensor, windows, -1, 0, length, step)
    return call_for(node, aten.unsqueeze.default, windows, 2)


def _lying_as(value: FakeTensor, expected: FakeTensor) -> torch.Tensor:
    """A value of the expected strides."""
    if value.stride() == expected.stride():
        return value
    with value.fake_mode:
        return torch.empty_strided(value.shape, expected.stride(), dtype=value.dtype, device=value.device)
