"""Gradients of losses that are means over no elements.

    mse_loss_backward(dy, x, target, MEAN)   ->   mse_loss_backward(dy, x, target, SUM)   where x has no elements

The gradient has no elements either. Torch's formulas divide by their number first, and Python refuses to divide by 0.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload
from torch.fx.experimental.symbolic_shapes import statically_known_true

from assay.compiler.torch_compat import Decompositions

aten = torch.ops.aten
MEAN, SUM = 1, 2
"""Values of `reduction`."""
DIVIDED_IN_PYTHON = (aten.mse_loss_backward, aten.smooth_l1_loss_backward, aten.huber_loss_backward)


def as_sum_of_nothing(operator: OpOverload, others: Decompositions) -> Callable[..., object]:
    """A decomposition of `operator` that takes a sum for a mean over nothing, and `others` in all other cases."""

    def decompose(grad: Tensor, x: Tensor, target: Tensor, reduction: int, *rest: Any) -> object:
        if reduction == MEAN and statically_known_true(x.numel() == 0):
            return operator(grad, x, target, SUM, *rest)
        return others[operator](grad, x, target, reduction, *rest) if operator in others else NotImplemented

    return decompose


def means_of_nothing(others: Decompositions) -> Decompositions:
    """The decompositions of these losses' gradients, on top of those that a table has already."""
    return {each.default: as_sum_of_nothing(each.default, others) for each in DIVIDED_IN_PYTHON}
