"""Programs that write their inputs or their buffers."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from harness.case import Made, case


def leaf(*shape: int) -> Tensor:
    """A tensor that training takes the gradient of."""
    return torch.randn(shape, requires_grad=True)


@case(tags=("mutation",))
def input_mutated_and_returned() -> Made:
    def f(x: Tensor, w: Tensor) -> Tensor:
        x.mul_(2)
        x.add_(w.sum())
        return x

    return f, (torch.randn(3, 4), leaf(4)), {}


@case(tags=("mutation", "raises"))
def input_mutated_and_read() -> Made:
    def f(x: Tensor, w: Tensor) -> Tensor:
        before = x * w
        x.sub_(1)
        return before + x

    return f, (torch.randn(3, 4), leaf(4)), {}


@case(tags=("mutation",))
def input_mutated_through_a_view() -> Made:
    def f(x: Tensor, w: Tensor) -> Tensor:
        x[1:].t().mul_(3)
        return x.sum(0) * w

    return f, (torch.randn(3, 4), leaf(4)), {}


@case(tags=("mutation",))
def input_overwritten_unread() -> Made:
    def f(x: Tensor, w: Tensor) -> Tensor:
        x.zero_()
        return w * 2

    return f, (torch.randn(3), leaf(3)), {}


@case(tags=("mutation",))
def input_mutated_in_no_grad() -> Made:
    def f(x: Tensor, w: Tensor) -> Tensor:
        with torch.no_grad():
            x.add_(1)
        return x * w

    return f, (torch.randn(3), leaf(3)), {}


@case(tags=("mutation",))
def batch_norm_updates_its_buffers() -> Made:
    model = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.ReLU())
    return model, (torch.randn(8, 4),), {}


@case(tags=("mutation",))
def buffer_counts_calls() -> Made:
    class Counter(nn.Module):
        calls: Tensor

        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("calls", torch.zeros((), dtype=torch.int64))
            self.weight = nn.Parameter(torch.randn(3))

        def forward(self, x: Tensor) -> Tensor:
            self.calls += 1
            return x * self.weight * self.calls

    return Counter(), (torch.randn(2, 3),), {}
