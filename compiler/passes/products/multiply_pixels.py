"""A convolution by single pixels of images with their channels innermost is a product of matrices.

    y = convolution(x, w, b)   ->   y = permute(view(addmm(b, view(permute(x)), t(view(w)))))

Where it steps over pixels, those that it reads are copied first. oneDNN reorders the weights of a convolution on each
call and spends more on starting one. On two cores, microseconds (convolution, product): 64 to 32 channels of 24 x 24
in batches of 4 118 and 89, 128 to 512 of 3 x 3 237 and 90, 256 to 512 of 6 x 6 by twos 429 and 190.

Rounding: other orders of the same float32 sums. Must run after `convolve_channels_last`, which gives images that
layout, and before `use_onednn`, which chooses the library.
"""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import fx

from assay.compiler.ir.graph.calls import call_for, written_sizes
from assay.compiler.ir.graph.replacement import replace_node
from assay.compiler.ir.graph.roles import Program
from assay.compiler.ir.tensors.layout.strides import is_by_channels, is_known
from assay.compiler.ir.typed_nodes import fake_value, ints_argument, node_argument

aten = torch.ops.aten


def multiply_pixels(program: Program) -> int:
    """Returns the number of convolutions that became products."""
    chosen = [node for node in program.module.graph.nodes if is_product(node) and _is_ready(node)]
    for node in chosen:
        _replace(node)
    return len(chosen)


def is_product(node: fx.Node) -> bool:
    """Whether a node convolves images with single pixels, each of the channels that it makes from all that it reads."""
    if node.target is not aten.convolution.default:
        return False
    x, w = fake_value(node_argument(node, 0)), fake_value(node_argument(node, 1))
    padding, output_padding = ints_argument(node, 4), ints_argument(node, 7)
    is_transposed, groups = node.args[6], node.args[8]
    if x.dim() != 4 or is_transposed or groups != 1 or any((*padding, *output_padding)):
        return False
    return w.shape[2:] == (1, 1) and x.device.type == "cpu" and x.dtype is torch.float32


def _is_ready(node: fx.Node) -> bool:
    """Whether the operands are matrices where they lie, and the result too.

    An image of one channel lies in both layouts, and eager may take it for the other one.
    """
    image, weight = (fake_value(node_argument(node, place)) for place in (0, 1))
    if not all(map(is_known, (*image.shape, *weight.shape))) or 0 in (*image.shape, *weight.shape):
        return False
    if not (is_by_channels(image) and is_by_channels(node.meta["val"])):
        return False
    return weight.stride(1) == 1 and weight.stride(0) == weight.shape[1]


def _replace(node: fx.Node) -> None:
    image, weight, bias, steps = cast(Any, node.args[:4])
    value = node.meta["val"]
    with node.graph.inserting_before(node):
        pixels: Any = call_for(node, aten.permute.default, image, [0, 2, 3, 1])
        if steps != [1, 1]:
            pixels = _stepped(node, pixels, steps)
        matrix = call_for(node, aten.view.default, pixels, [-1, _size(node, image, 1)])
        rows = call_for(node, aten.view.default, weight, [_size(node, weight, 0), -1])
        columns = call_for(node, aten.t.default, rows)
        product = _product(node, matrix, columns, bias)
        made = call_for(node, aten.view.default, product, [*(_size(node, pixels, dim) for dim in range(3)), -1])
        made = call_for(node, aten.permute.default, made, [0, 3, 1, 2])
        if made.meta["val"].stride() != value.stride():
            sizes = written_sizes(node.graph, [*value.shape, *value.stride()])
            made = call_for(node, aten.as_strided.default, made, sizes[: value.dim()], sizes[value.dim() :])
    replace_node(node, made)
    node.graph.erase_node(node)


def _stepped(node: fx.Node, pixels: fx.Node, steps: Any) -> fx.Node:
    """The pixels that a convolution with steps reads, as a tensor of their own."""
    for dim, step in enumerate(steps, 1):
        pixels = call_for(node, aten.slice.Tensor, pixels, dim, 0, 2**63 - 1, step)
    return call_for(node, aten.clone.default, pixels, memory_format=torch.contiguous_format)


def _product(node: fx.Node, matrix: fx.Node, columns: fx.Node, bias: Any) -> fx.Node:
    if bias is None:
        return call_for(node, aten.mm.default, matrix, columns)
    return call_for(node, aten.addmm.default, bias, matrix, columns)


def _size(node: fx.Node, of: fx.Node, dim: int) -> Any:
    """The size of a dimension of `of`, a node where it is symbolic."""
    size = of.meta["val"].shape[dim]
    return size if isinstance(size, int) else call_for(node, aten.sym_size.int, of, dim)
