"""Dtypes that fake tensors have otherwise: what norms save beside halves, and a loss with weights of another
dtype."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import assay.compiler  # noqa: F401

MODELS = {
    "rows": (lambda: nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.ReLU()), (8, 4)),
    "images": (lambda: nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU()), (2, 3, 6, 5)),
    "without running statistics": (
        lambda: nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6, track_running_stats=False), nn.ReLU()),
        (8, 4),
    ),
    "layers": (lambda: nn.Sequential(nn.Linear(4, 6), nn.LayerNorm(6), nn.ReLU()), (8, 4)),
    "groups": (lambda: nn.Sequential(nn.Conv2d(3, 4, 3), nn.GroupNorm(2, 4), nn.ReLU()), (2, 3, 6, 5)),
}


def gradients(model: nn.Module, call: object, x: Tensor) -> list[Tensor]:
    with torch.autocast("cpu", torch.bfloat16):
        y = call(x)  # type: ignore[operator]
        y.backward(torch.ones_like(y))
    found = [parameter.grad for parameter in model.parameters()]
    assert all(grad is not None for grad in found)
    return [grad for grad in found if grad is not None]


@pytest.mark.parametrize("target", ["aten", "cpp"])
@pytest.mark.parametrize("name", MODELS)
def test_backward_of_a_norm_of_halves_is_eagers(name: str, target: str) -> None:
    torch.manual_seed(0)
    make, shape = MODELS[name]
    model = make()
    other, x = copy.deepcopy(model), torch.randn(shape)
    options = {"fallback": "error", "target": target}
    ours = gradients(other, torch.compile(other, backend="assay", options=options), x)
    for mine, theirs in zip(ours, gradients(model, model, x), strict=True):
        assert mine.dtype == theirs.dtype
        torch.testing.assert_close(mine, theirs, atol=0.05, rtol=0.05)


@pytest.mark.parametrize("dtypes", [(torch.bfloat16, torch.float32), (torch.float32, torch.bfloat16)], ids=str)
@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
def test_loss_with_weights_of_another_dtype_has_eagers_dtype(
    dtypes: tuple[torch.dtype, torch.dtype], reduction: str
) -> None:
    def loss(x: Tensor, weight: Tensor) -> Tensor:
        targets = torch.full_like(x, 0.25)
        return F.binary_cross_entropy_with_logits(x, targets, weight, reduction, pos_weight=weight)

    x, weight = torch.ones(4, 3, dtype=dtypes[0]), torch.ones(3, dtype=dtypes[1])
    ours = torch.compile(loss, backend="assay", options={"fallback": "error"})(x, weight)
    torch.testing.assert_close(ours, loss(x, weight))
