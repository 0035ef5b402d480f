"""Whole backwards on a GPU: compiled and recorded, beside eager, over loops that people write."""

from __future__ import annotations

import copy
from collections.abc import Iterator

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import assay
from assay.compiler.journal import reset, totals
from assay.harness.case import Case
from assay.harness.discover import discover
from assay.harness.run import RunRequest, run_case

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU"),
]
STEPS = 8


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    torch._dynamo.reset()
    torch.manual_seed(0)
    reset()
    yield
    torch._dynamo.reset()


class Attention(nn.Module):
    """One layer of attention, with a graph break behind it."""

    def __init__(self, width: int = 32, heads: int = 4) -> None:
        super().__init__()
        self.heads = heads
        self.joined, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        parts = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in self.joined(x).chunk(3, -1))
        y = F.scaled_dot_product_attention(*parts).transpose(1, 2).flatten(2)
        torch._dynamo.graph_break()
        return x + self.out(y)


def trained(model: nn.Module, given: list[Tensor], compiled: bool, mode: str | None) -> list[float]:
    """The losses of steps, which a layer that was trained wrongly would change."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    call = torch.compile(model, backend="assay", mode=mode) if compiled else model
    losses = []
    for x in given:
        loss = call(x).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses


@pytest.mark.parametrize("mode", [None, "reduce-overhead"])
def test_attention_between_graph_breaks_trains_as_in_eager(mode: str | None) -> None:
    model = nn.Sequential(*(Attention() for _ in range(3))).cuda()
    given = [torch.randn(2, 64, 32, device="cuda") for _ in range(STEPS)]
    expected = trained(copy.deepcopy(model), given, False, None)
    with assay.compiled_autograd():
        found = trained(model, given, True, mode)
    assert found == pytest.approx(expected, rel=1e-4)
    counted = totals()
    assert counted["backwards"] and not counted["eager_backwards"]
    if mode is not None:
        assert counted["replayed"] and not counted["unrecorded"]


def test_a_number_of_the_host_in_a_formula() -> None:
    """Eager saves the factor as a tensor of the CPU, which the backward of the whole reads."""
    factor = torch.tensor(3.0)

    def slope() -> Tensor:
        torch.manual_seed(0)
        x = torch.randn(64, device="cuda", requires_grad=True)
        ((x.sin() * factor).exp() * factor).sum().backward()
        assert x.grad is not None
        return x.grad

    expected = slope()
    with assay.compiled_autograd():
        for _ in range(STEPS):
            torch.testing.assert_close(slope(), expected)
    assert totals()["backwards"] and not totals()["eager_backwards"]


@pytest.mark.parametrize("case", discover(["training"]), ids=lambda case: case.name)
def test_training_loops_are_eagers(case: Case) -> None:
    """Those that record gradients of gradients run some backwards in eager, which is counted."""
    result = run_case(case, "train", "assay,own_backward", RunRequest(device="cuda", timed=False))
    assert result.verdict in ("same", "fell-back"), result
