"""Group norm as reductions over one view: `x[n, c, ...]` as `[n, group, channel, position]`.

    xhat = (x - mean) * rstd;   y = xhat * weight + bias

Its gradients as a layer norm has them, from `xhat`: eager's own formula takes differences of large sums.

Source: layouts and dtypes of the results follow aten/src/ATen/native/group_norm.cpp, torch 2.13.
"""

from __future__ import annotations

import torch
from torch import Tensor

from assay.compiler.capture.decompositions.batch_norm import wide
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


def group_norm(
    x: Tensor, weight: Maybe, bias: Maybe, n: int, c: int, positions: int, group: int, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    """`native_group_norm`: the output, and of each group the mean and the reciprocal deviation.

    Shapes: `x[n, c, ...], weight[c], bias[c] -> y[n, c, ...], mean[n, group], rstd[n, group]`
    """
    if x.device.type != "cpu" or x.numel() == 0 or not (x.is_contiguous() or is_by_channels(x)):
        return NotImplemented  # eager's kernel refuses other layouts, as the call to ATen will
    grouped = _grouped(x, n, group)
    var, mean = torch.var_mean(grouped, [2, 3], correction=0, keepdim=True)
    rstd = torch.rsqrt(var + eps)
    y = (grouped - mean) * rstd
    y = y if weight is None else y * _by_channel(weight, group)
    y = y if bias is None else y + _by_channel(bias, group)
    kept = x.dtype if weight is None else weight.dtype
    return y.reshape(x.shape).to(x.dtype), mean.view(n, group).to(kept), rstd.view(n, group).to(kept)


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
    if x.device.type != "cpu" or x.numel() == 0:
        return NotImplemented
    scale = wide(rstd).view(n, group, 1, 1)
    upper, normal = _grouped(grad, n, group), (_grouped(x, n, group) - wide(mean).view(n, group, 1, 1)) * scale
    kept = (x if weight is None else weight).dtype
    to_weight = aten.sum.dim_IntList(upper * normal, [0, 3]).view(c).to(kept) if output_mask[1] else None
    to_bias = aten.sum.dim_IntList(upper, [0, 3]).view(c).to(kept) if output_mask[2] else None
    if not output_mask[0]:
        return None, to_weight, to_bias
    inner = upper if weight is None else upper * _by_channel(weight, group)
    mean_of_inner, rounding = (torch.mean(each, [2, 3], keepdim=True) for each in (inner, normal))
    slope = torch.mean(inner * normal, [2, 3], keepdim=True) - mean_of_inner * rounding
    to_x = (inner - mean_of_inner - normal * slope) * scale
    return to_x.reshape(x.shape).to(x.dtype), to_weight, to_bias


GROUP_NORM = {
    aten.native_group_norm.default: group_norm,
    aten.native_group_norm_backward.default: group_norm_gradients,
}
