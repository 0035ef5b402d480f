"""Batch norm taken apart against eager's own, in its variants, forward and backward."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from compiler import journal
from compiler.fx import assay


@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
@pytest.mark.parametrize("affine", [True, False], ids=["affine", "plain"])
@pytest.mark.parametrize("tracked", [True, False], ids=["tracked", "untracked"])
@pytest.mark.parametrize("shape", [(8, 5), (4, 5, 3), (4, 5, 3, 2)], ids=str)
def test_batch_norm_is_eagers(training: bool, affine: bool, tracked: bool, shape: tuple[int, ...]) -> None:
    torch._dynamo.reset()
    journal.reset()
    kind = {2: nn.BatchNorm1d, 3: nn.BatchNorm1d, 4: nn.BatchNorm2d}[len(shape)]
    ours, theirs = (kind(5, affine=affine, track_running_stats=tracked).train(training) for _ in range(2))
    compiled = torch.compile(ours, backend=assay)
    for step in range(2):
        generator = torch.Generator().manual_seed(step)
        x = torch.randn(shape, generator=generator) * 3 + 1
        results = [step_of(module, x) for module in (compiled, theirs)]
        for got, want in zip(*results, strict=True):
            torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(dict(ours.named_buffers()), dict(theirs.named_buffers()))
    assert not journal.totals()["eager_graphs"] and not journal.totals()["fallbacks"]


def step_of(module: nn.Module, values: Tensor) -> list[Tensor]:
    x = values.clone().requires_grad_()
    y = module(x)
    leaves = [x, *module.parameters()]
    return [y, *torch.autograd.grad((y * values.cos()).sum(), leaves)]
