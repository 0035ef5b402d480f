"""Pads products of half precision on a GPU whose rows begin off 16 bytes, as those of most vocabularies do.

    mm(x[m, k], w[k, 30522])   ->   clone(slice(mm(x, pad(w)), 1, 0, 30522))        30528 columns
    mm(g[m, 30522], w)         ->   mm(pad(g), pad(w))                              the sum goes over zeros as well
    mm(t(g[m, 30522]), x)      ->   clone(slice(mm(t(pad(g)), x), 0, 0, 30522))     rows more, which are cut off

What pads or cuts is fused with what makes or reads the operand. On an H200, 4096 rows of 768 in bfloat16, microseconds
as it is and padded: forward 789 and 271, the gradient of x 852 and 271, of w 782 and 443; with 50257 columns 3352 and
453. Padding w alone takes 22. The gradient of w with rows that only begin where they should, and are no more, is
slower: 628 where 387 are.

Rounding: other orders of the same sums. A product that is -0 may be 0.
"""

from __future__ import annotations

import math
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import fx

from assay.compiler.ir.graph.calls import call_for, put_in_place
from assay.compiler.ir.graph.roles import Program
from assay.compiler.ir.typed_nodes import fake_value, node_argument, node_arguments
from assay.compiler.machine import number

aten = torch.ops.aten
DEVICE = "cuda"
ALIGNED = 8
"""Elements of two bytes that the tensor cores' kernels read at once."""


def pad_products(program: Program) -> int:
    """Returns the number of products that were padded."""
    products = (aten.mm.default, aten.addmm.default)
    chosen = [node for node in program.module.graph.nodes if node.target in products and _is_chosen(node)]
    padding = _Padding()
    for node in chosen:
        _rewrite(node, padding)
    return len(chosen)


def _is_chosen(node: fx.Node) -> bool:
    left, right = map(fake_value, node_arguments(node)[-2:])
    sizes = (*left.shape, right.shape[1])
    if left.device.type != DEVICE or left.dtype not in (torch.float16, torch.bfloat16):
        return False
    if not all(isinstance(size, int) and size > 0 for size in sizes):
        return False
    if node.target is aten.addmm.default and not _has_plain_bias(node):
        return False
    m, k, n = sizes
    is_turned = left.stride(0) == 1 and left.stride(1) == m > 1
    if not (k % ALIGNED or n % ALIGNED or (is_turned and m % ALIGNED)):
        return False
    slow, fast = number("odd_product_flops_a_second"), number("even_product_flops_a_second")
    gain = 2.0 * m * k * n * (1 / slow - 1 / fast)
    moved = 2 * sum(math.prod(value.shape) * value.element_size() for value in (left, right))
    return gain > number("padding_gain_ns") / 1e9 and gain > moved / number("memory_bytes_a_second")


def _has_plain_bias(node: fx.Node) -> bool:
    """Whether the bias is a row, which nothing scales."""
    value = node.meta["val"]
    return fake_value(node_argument(node, 0)).shape == value.shape[1:] and not node.kwargs


def _rewrite(node: fx.Node, padding: _Padding) -> None:
    left, right = node.args[-2:]
    assert isinstance(left, fx.Node) and isinstance(right, fx.Node)
    m, k = left.meta["val"].shape
    n = right.meta["val"].shape[1]
    if k % ALIGNED:
        left, right = padding(left, 1), padding(right, 0)
    is_longer = m % ALIGNED != 0 and left.meta["val"].stride(0) == 1
    if is_longer:
        left = padding(left, 0)
    if n % ALIGNED:
        right = padding(right, 1)
    with node.graph.inserting_before(node):
        if node.target is aten.addmm.default:
            bias: Any = node.args[0]
            if n % ALIGNED:
                bias = call_for(node, aten.constant_pad_nd.default, bias, [0, -n % ALIGNED], 0)
            made = call_for(node, aten.addmm.default, bias, left, right)
        else:
            made = call_for(node, aten.mm.default, left, right)
        if is_longer:
            made = call_for(node, aten.slice.Tensor, made, 0, 0, m)
        if n % ALIGNED:
            made = call_for(node, aten.slice.Tensor, made, 1, 0, n)
        if is_longer or n % ALIGNED:  # as it would lie in memory of its own
            made = call_for(node, aten.clone.default, made, memory_format=torch.contiguous_format)
    put_in_place(made, node)


class _Padding:
    """Matrices with zeros behind a dimension, each made once, where the matrix itself is; what is turned is padded
    before that."""

    def __init__(self) -> None:
        self._made: dict[tuple[fx.Node, int], fx.Node] = {}

    def __call__(self, matrix: fx.Node, dim: int) -> fx.Node:
        key = matrix, dim
        if key not in self._made:
            self._made[key] = self._padded(matrix, dim)
        return self._made[key]

    def _padded(self, matrix: fx.Node, dim: int) -> fx.Node:
        turned = _turned(matrix)
        if turned is not None:
            whole = self(turned, 1 - dim)
            with _behind(whole):
                return call_for(matrix, aten.t.default, whole)
        by = -matrix.meta["val"].shape[dim] % ALIGNED
        with _behind(matrix):
            return call_for(matrix, aten.constant_pad_nd.default, matrix, [0, by] if dim else [0, 0, 0, by], 0)


def _behind(node: fx.Node) -> AbstractContextManager[Any]:
    """Where calls are added that read a node: right behind it, and behind the graph's inputs."""
    while node.op == "placeholder" and node.next.op == "placeholder":
        node = node.next
    return node.graph.inserting_after(node)


def _turned(matrix: fx.Node) -> fx.Node | None:
    """What a matrix is the transposed of."""
    if matrix.target not in (aten.t.default, aten.permute.default, aten.transpose.int):
        return None
    before = matrix.args[0]
    assert isinstance(before, fx.Node)
    was, now = before.meta["val"], matrix.meta["val"]
    is_turned = now.dim() == 2 and was.stride() == now.stride()[::-1] and was.shape == now.shape[::-1]
    return before if is_turned else None
