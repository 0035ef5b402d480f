"""What a call costs when there is nothing to compute: guards, calling convention, autograd."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from harness.case import Made, case


@case(tags=("overhead",))
def tiny_function() -> Made:
    """One pointwise kernel over eight elements."""

    def scale_and_shift(x: Tensor) -> Tensor:
        return x * 2 + 1

    return scale_and_shift, (torch.randn(8, requires_grad=True),), {}


@case(tags=("overhead",))
def tiny_module() -> Made:
    """A module with twelve parameters, so that what a call pays for each of them shows."""

    class Shifts(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.shifts = nn.ParameterList(nn.Parameter(torch.randn(8)) for _ in range(12))

        def forward(self, x: Tensor) -> Tensor:
            for shift in self.shifts:
                x = torch.tanh(x + shift)
            return x

    return Shifts(), (torch.randn(8),), {}
