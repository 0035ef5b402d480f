"""Gives float32 matrix products on the CPU to our own kernel where it is faster than the libraries.

    y = addmm(b, x, w)   ->   y = assay.multiply(x, w, b)            y = bmm(x, w)   ->   y = assay.multiply_batch(x, w)

Rounding: another order of the same float32 sums. On two cores of an AVX-512 machine (peak 234 GFLOP/s), microseconds:

    rows x depth x columns  2304x48x192  36x1024x256  384x256x1024  580x1024x256  512x768x3072  512x4096x4096
    ours                            219          112           980          1444         11759          81827
    oneDNN                          235          135          1074          1563         11869          80305
    MKL                             229          170          1109          1760         16121         110417

The gradient of a weight, whose first operand is transposed, takes 1002 in 384 x 256 x 1024, oneDNN 1324 and MKL 1265;
8 rows in 8 x 1024 x 1024 take 203, in MKL 403; 16 products of 96 x 64 x 96 take 112, in MKL 152. A call costs 3 us more
than MKL's: small products stay where they are, and those of one row, which read each number of `w` once. On another
machine who is fastest is measured, when a compile first meets such a product.
"""

from __future__ import annotations

import math

import torch
from torch import fx

from assay.compiler.ir.graph.calls import call_for, put_in_place
from assay.compiler.ir.graph.roles import Program
from assay.compiler.ir.tensors.layout.strides import hint, hints, is_known
from assay.compiler.machine import number
from assay.compiler.ops.calls.products import (
    has_wide_vectors,
    is_own_fastest,
    may_be_shortened,
    multiply,
    multiply_batch,
    prepare_multiply,
)
from assay.compiler.passes.products.matching import is_float32_on_cpu, operands_of_product

aten = torch.ops.aten

PRODUCTS = (aten.mm.default, aten.addmm.default, aten.bmm.default)
LEAST_ROWS = 2
"""Rows of a product, at least: of one row it is a matrix times a vector, which memory limits."""


def multiply_matrices(program: Program) -> int:
    """Returns the number of products that changed hands."""
    if not has_wide_vectors() or may_be_shortened():
        return 0
    products = [node for node in program.module.graph.nodes if node.target in PRODUCTS]
    chosen = [node for node in products if _is_taken(node) and _is_faster(node)]
    for node in chosen:
        _replace(node)
    if chosen:
        prepare_multiply()
    return len(chosen)


def _is_taken(node: fx.Node) -> bool:
    """Whether the kernel reads the operands where they lie."""
    if not is_float32_on_cpu(node):
        return False
    bias, *matrices = operands_of_product(node)
    left, right = (matrix.meta["val"] for matrix in matrices)
    if not all(is_known(size) for value in (left, right) for size in (*value.shape, *value.stride())):
        return False
    if bias is not None and str(bias.meta["val"].stride(0)) != "1":
        return False
    return 1 in hints(left.stride())[-2:] and 1 in hints(right.stride())[-2:]


def _is_faster(node: fx.Node) -> bool:
    _, x, w = operands_of_product(node)
    (*batch, rows, depth), columns = hints(x.meta["val"].shape), hint(w.meta["val"].shape[-1])
    if batch and batch[0] < torch.get_num_threads():
        return False  # each product is one thread's
    is_large = rows >= LEAST_ROWS and 2 * math.prod(batch) * rows * depth * columns >= number("own_product_flops")
    return is_large and is_own_fastest(is_turned=hint(x.meta["val"].stride(-1)) != 1)


def _replace(node: fx.Node) -> None:
    bias, x, w = operands_of_product(node)
    with node.graph.inserting_before(node):
        if node.target is aten.bmm.default:
            product = call_for(node, multiply_batch, x, w)
        else:
            product = call_for(node, multiply, x, w, bias)
    put_in_place(product, node)
