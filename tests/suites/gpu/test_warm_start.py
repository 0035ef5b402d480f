"""Calls on a GPU made from what the cache kept: with the same results, gradients and random numbers, and recorded."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from assay.compiler import journal

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU"),
]


@pytest.fixture(autouse=True)
def counted_from_zero() -> Iterator[None]:
    journal.reset()
    yield
    torch._dynamo.reset()


class Block(nn.Module):
    def __init__(self, drops: float) -> None:
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(96), nn.Linear(96, 384), nn.Linear(384, 96)
        self.drops = drops

    def forward(self, x: Tensor) -> Tensor:
        hidden = F.gelu(self.up(self.norm(x)))
        return x + F.dropout(self.down(hidden), self.drops, training=True)


def step(make: Callable[[], nn.Module], folder: Path, calls: int = 1, **options: bool) -> list[Tensor]:
    """The results and gradients of a few calls of a model, compiled as a process that has just begun would."""
    torch._dynamo.reset()
    torch.manual_seed(0)
    with torch.device("cuda"):
        model, x = make(), torch.randn(64, 96)
    run = torch.compile(model, backend="assay", options={"cache": str(folder), "warm": True, **options})
    torch.manual_seed(1)
    found = []
    for _ in range(calls):
        for parameter in model.parameters():
            parameter.grad = None
        y = run(x)
        y.square().mean().backward()
        found += [y.detach().clone(), *(p.grad.clone() for p in model.parameters() if p.grad is not None)]
        del y
    return found


@pytest.mark.parametrize("drops", [0.0, 0.25])
@pytest.mark.parametrize("calls", [1, 6])
def test_a_restored_call_is_the_compiled_one(drops: float, calls: int, tmp_path: Path) -> None:
    first = step(lambda: Block(drops), tmp_path, calls)
    assert journal.totals()["restored"] == 0 and journal.totals()["uncached"] == {}
    second = step(lambda: Block(drops), tmp_path, calls)
    assert journal.totals()["restored"] == 1
    assert all(torch.equal(one, other) for one, other in zip(first, second, strict=True))


def test_a_restored_call_is_recorded(tmp_path: Path) -> None:
    first = step(lambda: Block(0.0), tmp_path, 8, cudagraphs=True)
    recorded = journal.totals()["recorded"]
    assert recorded == 2
    second = step(lambda: Block(0.0), tmp_path, 8, cudagraphs=True)
    assert journal.totals()["restored"] == 1 and journal.totals()["recorded"] == 4
    assert all(torch.equal(one, other) for one, other in zip(first, second, strict=True))


def test_a_restored_kernel_takes_addresses_that_it_was_not_compiled_for(tmp_path: Path) -> None:
    def function(x: Tensor) -> Tensor:
        return (x * 2 + 1).relu()

    whole = torch.randn(4097, device="cuda")
    for given in (whole[:4096], whole[1:]):
        torch._dynamo.reset()
        run = torch.compile(function, backend="assay", options={"cache": str(tmp_path), "warm": True}, dynamic=False)
        found = run(given)
        torch.testing.assert_close(found, function(given))
