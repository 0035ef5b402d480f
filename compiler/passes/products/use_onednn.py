"""Gives float32 matrix products on the CPU to oneDNN where it is the faster library.

    t = t(w); y = addmm(b, x, t)   ->   y = _linear_pointwise(x, w, b, "none")

Rounding: another order of the same float32 sums. On two cores of an AVX-512 machine (peak 234 GFLOP/s) oneDNN reaches
0.92 of the peak and MKL 0.83; a call of it costs 15 us more, so small products stay where they are. Products whose
first operand is transposed (gradients of weights) stay too: oneDNN packs them more slowly.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

from assay.compiler.ir.graph.calls import put_in_place
from assay.compiler.ir.graph.roles import Program
from assay.compiler.ir.tensors.layout.strides import hint, hints, is_known
from assay.compiler.ir.typed_nodes import node_argument
from assay.compiler.machine import number
from assay.compiler.ops.calls.products import is_onednn_faster
from assay.compiler.passes.products.matching import is_float32_on_cpu, operands_of_product

aten = torch.ops.aten


def use_onednn(program: Program) -> int:
    """Returns the number of products that changed hands."""
    if not torch.backends.mkldnn.is_available() or not torch.backends.mkldnn.enabled:
        return 0
    products = [node for node in program.module.graph.nodes if node.target in (aten.mm.default, aten.addmm.default)]
    chosen = [node for node in products if _is_faster(node)]
    for node in chosen:
        _replace(node)
    return len(chosen)


def _is_faster(node: fx.Node) -> bool:
    if not is_float32_on_cpu(node):
        return False
    _, x, w = operands_of_product(node)
    left, right = x.meta["val"], w.meta["val"]
    if not all(is_known(size) for size in (*left.shape, *left.stride(), right.shape[1])):
        return False
    (rows, depth), columns = hints(left.shape), hint(right.shape[1])
    is_taken = 2 * rows * depth * columns >= number("onednn_product_flops") and hint(left.stride(1)) == 1
    return is_taken and is_onednn_faster()


def _replace(node: fx.Node) -> None:
    bias, x, w = operands_of_product(node)
    graph = node.graph
    with graph.inserting_before(node):
        weight = _transposed(w)
        arguments: Any = (x, weight, bias, "none", [], "")
        product = graph.call_function(torch.ops.mkldnn._linear_pointwise.default, arguments)
    product.meta.update(node.meta)
    put_in_place(product, node)


def _transposed(w: fx.Node) -> fx.Node:
    """The rows as oneDNN takes them: what `w` is the transpose of, or its transpose."""
    if w.target is aten.t.default:
        return node_argument(w, 0)
    made = w.graph.call_function(aten.t.default, (w,))
    value = w.meta["val"]
    with value.fake_mode:
        made.meta["val"] = value.t()
    return made
