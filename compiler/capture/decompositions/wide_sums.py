"""What meets in one element is added up in float32 on a GPU, and rounded to a half once, as eager's kernels have it.

    embedding_dense_backward(gradient, ...)    ->     embedding_dense_backward(gradient.float(), ...).to(half)

A row of a table that is looked up a thousand times has a gradient of a thousand terms: added in bfloat16 it would be a
tenth off. On the CPU eager adds in the half itself.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from assay.compiler.capture.decompositions.batch_norm import HALVES
from assay.compiler.torch_compat import Decompositions

aten = torch.ops.aten


def _is_half_on_gpu(value: Tensor) -> bool:
    return value.is_cuda and value.dtype in HALVES


def embedding_gradient(grad: Tensor, index: Tensor, rows: int, padding: int, by_frequency: bool) -> Tensor:
    """`embedding_dense_backward`: `grad[..., d], index[...] -> [rows, d]`."""
    if not _is_half_on_gpu(grad) or by_frequency:
        return NotImplemented
    return aten.embedding_dense_backward.default(grad.float(), index, rows, padding, False).to(grad.dtype)


def put(x: Tensor, indices: Sequence[Tensor | None], values: Tensor, accumulate: bool = False) -> Tensor:
    """`index_put`, where it accumulates."""
    if not accumulate or not _is_half_on_gpu(x) or values.dtype != x.dtype:
        return NotImplemented
    return aten.index_put.default(x.float(), list(indices), values.float(), True).to(x.dtype)


WIDE_SUMS: Decompositions = {
    aten.embedding_dense_backward.default: embedding_gradient,
}
