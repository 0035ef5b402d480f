"""Matrix products as passes find them: `mm`, `addmm` and `bmm`."""

from __future__ import annotations

import torch
from torch import fx

from assay.compiler.ir.tensors.layout.strides import hint, is_known
from assay.compiler.ir.typed_nodes import node_arguments


def operands_of_product(node: fx.Node) -> tuple[fx.Node | None, fx.Node, fx.Node]:
    """Bias, rows and columns of a call of `mm`, `addmm` or `bmm`."""
    operands = node_arguments(node)
    bias = operands[0] if node.target is torch.ops.aten.addmm.default else None
    return bias, operands[-2], operands[-1]


def is_float32_on_cpu(node: fx.Node) -> bool:
    """Whether such a product is one of float32 on the CPU, of nothing but its operands: no factors, and of a bias one
    number a column, not one for all."""
    bias, x, w = operands_of_product(node)
    left, columns = x.meta["val"], w.meta["val"].shape[-1]
    if node.kwargs or left.device.type != "cpu" or left.dtype is not torch.float32:
        return False
    if bias is None:
        return True
    row = bias.meta["val"]
    return row.dim() == 1 and is_known(columns) and hint(row.shape[0]) == hint(columns)
