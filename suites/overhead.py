"""What a call costs when there is nothing to compute: guards, calling convention, autograd."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from assay.harness.case import Made, case


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


@case(tags=("overhead",))
def two_inputs() -> Made:
    """Two small inputs, neither written nor returned: the least that a call of two tensors costs."""

    def product(x: Tensor, y: Tensor) -> Tensor:
        return x * y + 1

    return product, (torch.randn(8, requires_grad=True), torch.randn(8, requires_grad=True)), {}


@case(tags=("overhead",))
def mutation_and_alias() -> Made:
    """One input written in place, and one result that is a view of the other. Written so that its values stay small."""

    def negate(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        x.neg_()
        return x * y + 1, y.view(2, 4)

    return negate, (torch.randn(8), torch.randn(8, requires_grad=True)), {}
