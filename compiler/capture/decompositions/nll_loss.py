"""The gradient of `nll_loss`, which is a positive zero wherever no target stands.

    dx[n, c] = -weight[c] * dy[n] / total_weight   where c == target[n] and target[n] != ignore_index;   0 elsewhere

Torch's own formula multiplies by zero elsewhere. That is a negative zero where `dy` is negative, and NaN where it is
NaN or infinite.

Source: which gradients are zero follows aten/src/ATen/native/LossNLL.cpp, torch 2.13.
"""

from __future__ import annotations

import torch
from torch import Tensor

from assay.compiler.torch_compat import Decompositions

aten = torch.ops.aten
NONE, MEAN = 0, 1
"""Values of `reduction`."""


def nll_loss_gradient(
    grad: Tensor, x: Tensor, target: Tensor, weight: Tensor | None, reduction: int, *rest: int | Tensor
) -> Tensor:
    """`nll_loss_backward` and `nll_loss2d_backward`; `rest` are the ignored target and the sum of the weights.

    Shapes: `grad[n, ...] or grad[], x[n, c, ...], target[n, ...], weight[c] -> dx[n, c, ...]`
    """
    ignored, total = rest
    classes = min(x.dim() - 1, 1)
    target = target.unsqueeze(classes)
    is_kept = target != ignored
    none = torch.zeros(x.shape, dtype=torch.bool, device=x.device)
    is_target = none.scatter(classes, torch.where(is_kept, target, 0), True) & is_kept
    grad = grad / total if reduction == MEAN else grad
    grad = grad.unsqueeze(classes) if reduction == NONE else grad
    slope = -grad if weight is None else -grad * weight.view([-1] + [1] * (x.dim() - classes - 1))
    return torch.where(is_target, slope, 0).to(x.dtype)


def nll_loss2d_gradient(
    grad: Tensor, x: Tensor, target: Tensor, weight: Tensor | None, reduction: int, *rest: int | Tensor
) -> object:
    """`nll_loss2d_backward`; left to ATen, which refuses it, where a gradient that lies as the input is not in rows."""
    if not torch.empty_like(x).is_contiguous():
        return NotImplemented
    return nll_loss_gradient(grad, x, target, weight, reduction, *rest)


NLL_LOSS: Decompositions = {
    aten.nll_loss_backward.default: nll_loss_gradient,
    aten.nll_loss2d_backward.default: nll_loss2d_gradient,
}
