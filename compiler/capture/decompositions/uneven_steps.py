"""Gradients of convolutions of single pixels that step along rows otherwise than along columns.

    convolution_backward(dy, x, w, stride=(1, 2))   where w has one pixel
    ->   s = x[:, :, ::1, ::2];   ds, dw, db = convolution_backward(dy, s, w, stride=(1, 1));   dx = ds among zeros

Where the first form writes beyond its memory; see `harmful_calls.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import NotImplementedType
from typing import Any

import torch
from torch import Tensor

from assay.compiler.ir.tensors.harmful_calls import writes_beyond_memory
from assay.compiler.torch_compat import Decompositions

aten = torch.ops.aten
OPERATOR = aten.convolution_backward.default


def gradients_of_what_is_read(*given: Any) -> tuple[Tensor | None, ...] | NotImplementedType:
    """`convolution_backward` of the pixels alone that the convolution reads, each of them once."""
    if not writes_beyond_memory(OPERATOR, given):
        return NotImplemented
    grad, x, weight, bias_sizes, stride, padding, _, _, output_padding, groups, output_mask = given
    read = x
    for dim, step in enumerate(stride, 2):
        read = aten.slice.Tensor(read, dim, 0, x.shape[dim], step)
    ones = [1] * len(stride)
    dx, *others = OPERATOR(
        grad, read, weight, bias_sizes, ones, padding, ones, False, output_padding, groups, output_mask
    )
    return None if dx is None else _among_zeros(dx, x, stride), *others


def _among_zeros(gradient: Tensor, x: Tensor, stride: Sequence[int]) -> Tensor:
    """The gradient of all pixels, where that of those that are read is given."""
    for dim in range(len(stride) + 1, 1, -1):
        sizes = [*gradient.shape[:dim], x.shape[dim], *gradient.shape[dim + 1 :]]
        gradient = aten.slice_backward.default(gradient, sizes, dim, 0, x.shape[dim], stride[dim - 2])
    return gradient


UNEVEN_STEPS: Decompositions = {OPERATOR: gradients_of_what_is_read}
