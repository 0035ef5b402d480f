"""A product of matrices of which one is a vector is a sum that kernels compute, with what is before and after it.

    bmm(a[b, m, 1], c[b, 1, n])   ->   a * c + 0
    bmm(a[b, m, k], c[b, k, 1])   ->   sum(a * transpose(c), 2, keepdim)
    bmm(a[b, 1, k], c[b, k, n])   ->   sum(transpose(a) * c, 1, keepdim)

The library starts a product for each matrix of the batch. What it reads and gives is stored, which in a recurrence is
most of its work.

Rounding: another order of the same sums. A product alone is added to 0, as by the library, so that no 0 is negative.
"""

from __future__ import annotations

import math

import torch
from torch import fx

from assay.compiler.ir.graph.calls import call_for, put_in_place
from assay.compiler.ir.graph.roles import Program
from assay.compiler.ir.typed_nodes import fake_value, node_arguments
from assay.compiler.machine import number

aten = torch.ops.aten


def multiply_vectors(program: Program) -> int:
    """Returns the number of products that became sums."""
    found = [node for node in program.module.graph.nodes if node.target is aten.bmm.default]
    chosen = [node for node in found if _is_chosen(node)]
    for node in chosen:
        _rewrite(node)
    return len(chosen)


def _is_chosen(node: fx.Node) -> bool:
    left, right = map(fake_value, node_arguments(node))
    sizes = (*left.shape, right.shape[2])
    if left.dtype not in (torch.float32, torch.float64) or left.device.type != "cpu":
        return False
    if not all(isinstance(size, int) and size > 0 for size in sizes):
        return False
    _, m, k, n = sizes
    return k == 1 or (1 in (m, n) and m * k * n <= number("summed_product_elements"))


def _rewrite(node: fx.Node) -> None:
    left, right = node_arguments(node)
    shape, columns = fake_value(left).shape, fake_value(right).shape[2]
    with node.graph.inserting_before(node):
        if shape[2] == 1:
            made = call_for(node, aten.add.Tensor, call_for(node, aten.mul.Tensor, left, right), 0)
        elif columns == 1:
            product = call_for(node, aten.mul.Tensor, left, call_for(node, aten.transpose.int, right, 1, 2))
            made = call_for(node, aten.sum.dim_IntList, product, [2], True)
        else:
            product = call_for(node, aten.mul.Tensor, call_for(node, aten.transpose.int, left, 1, 2), right)
            made = call_for(node, aten.sum.dim_IntList, product, [1], True)
    if not _lies_alike(made.meta["val"], node.meta["val"]):
        made = _in_rows(node, made)
    put_in_place(made, node)


def _lies_alike(one: torch.Tensor, other: torch.Tensor) -> bool:
    return one.stride() == other.stride() or math.prod(one.shape) <= 1


def _in_rows(node: fx.Node, made: fx.Node) -> fx.Node:
    with node.graph.inserting_before(node):
        return call_for(node, aten.clone.default, made, memory_format=torch.contiguous_format)
