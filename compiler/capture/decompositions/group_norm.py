"""Group norm as reductions over one view: `x[n, c, ...]` as `[n, group, channel, position]`.

    xhat = (x - mean) * rstd;   y = xhat * weight + bias

Its gradients as a layer norm has them, from `xhat`: eager's own formula takes differences of large sums.

Source: layouts and dtypes of the results follow aten/src/ATen/native/group_norm.cpp, torch 2.13.
"""

from __future__ import annotations

import torch
from torch import Tensor

from assay.compiler.capture.decompositions.batch_norm import wide
from assay.compiler.ir.tensors.devices import has_kernels
from assay.compiler.ir.tensors.layout.strides import is_by_channels

aten = torch.ops.aten
Maybe = Tensor | None


def _grouped(value: Tensor, n: int, group: int) -> Tensor:
    """`[n, group, channel, position]`, in float32 or wider; where there is nothing too."""
    channels = value.shape[1] // group
    positions = 1
    for size in value.shape[2:]:
        positions *= size
    return wide(value).reshape(n, group, channels, positions)


def _by_channel(value: Tensor, group: int) -> Tensor:
    """`value[c]` as `[1, group, channel, 1]`."""
    return wide(value).view(1, group, -1, 1)


def _is_taken(x: Tensor, *affine: Maybe) -> bool:
    """Whether eager's kernel takes it. On a GPU: rows of one dtype; on a CPU channels last or wider factors too."""
    if x.is_cuda:
        return x.is_contiguous() and all(value is None or value.dtype == x.dtype for value in affine)
    return x.is_contiguous() or is_by_channels(x)


def _moments(grouped: Tensor) -> tuple[Tensor, Tensor]:
    """Variance and mean of each group, joined from those of its channels: their positions lie in order in memory."""
    var, mean = torch.var_mean(grouped, [3], correction=0, keepdim=True)
    joined = mean.mean(2, keepdim=True)
    return (var + (mean - joined).square()).mean(2, keepdim=True), joined


def group_norm(
    x: Tensor, weight: Maybe, bias: Maybe, n: int, c: int, positions: int, group: int, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    """`native_group_norm`: the output, and of each group the mean and the reciprocal deviation.

    Shapes: `x[n, c, ...], weight[c], bias[c] -> y[n, c, ...], mean[n, group], rstd[n, group]`
    """
    if not has_kernels(x.device) or x.numel() == 0 or not _is_taken(x, weight, bias):
        return NotImplemented  # eager's kernel refuses it, as the call to ATen will
    grouped = _grouped(x, n, group)
    var, mean = _moments(grouped)
    rstd = torch.rsqrt(var + eps)
    y = (grouped - mean) * rstd
    y = y if weight is None else y * _by_channel(weight, group)
    y = y if bias is None else y + _by_channel(bias, group)
    kept = x.dtype if weight is None else weight.dtype
    return y.reshape(x.shape).to(x.dtype), mean.view(n, group).to(kept), rstd.view(n, group).to(kept)


def _of_positions(value: Tensor) -> Tensor:
    """The sum over the positions of each channel: what is taken of groups and of channels starts from these."""
    return value.sum(3, keepdim=True)


def group_norm_gradients(
    grad: Tensor,
    x: Tensor,
    mean: Tensor,
    rstd: Tensor,
    weight: Maybe,
    n: int,
    c: int,
    positions: int,
    group: int,
    output_mask: list[bool],
) -> tuple[Maybe, Maybe, Maybe]:
    """`native_group_norm_backward`: the gradients of input, weight and bias."""
    if not has_kernels(x.device) or x.numel() == 0:
        return NotImplemented
    scale = wide(rstd).view(n, group, 1, 1)
    upper, normal = _grouped(grad, n, group), (_grouped(x, n, group) - wide(mean).view(n, group, 1, 1)) * scale
    of_upper, of_products = _of_positions(upper), _of_positions(upper * normal)
    kept = (x if weight is None else weight).dtype
    to_weight = of_products.sum(0).view(c).to(kept) if output_mask[1] else None
    to_bias = of_upper.sum(0).view(c).to(kept) if output_mask[2] else None
    if not output_mask[0]:
        return None, to_weight, to_bias
    factor = 1.0 if weight is None else _by_channel(weight, group)
    count = x.numel() // (n * group)
    mean_of_inner, mean_of_products, rounding = (
        each.sum(2, keepdim=True) / count for each in (of_upper * factor, of_products * factor, _of_positions(normal))
    )
    slope = mean_of_products - mean_of_inner * rounding
    to_x = (upper * factor - mean_of_inner - (normal - rounding) * slope) * scale
    return to_x.reshape(x.shape).to(x.dtype), to_weight, to_bias


GROUP_NORM = {
    aten.native_group_norm.default: group_norm,
    aten.native_group_norm_backward.default: group_norm_gradients,
}
