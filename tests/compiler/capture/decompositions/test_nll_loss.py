"""The gradient of `nll_loss` against eager's, bit for bit: signs of zeros, and NaN only where a target stands."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from assay.compiler import journal
from assay.compiler.capture.decompositions.nll_loss import nll_loss_gradient
from assay.compiler.entry.dynamo import assay

aten = torch.ops.aten
CLASSES = 5


def bits(value: Tensor) -> Tensor:
    return value.view({2: torch.int16, 4: torch.int32, 8: torch.int64}[value.itemsize])


def targets(shape: tuple[int, ...]) -> Tensor:
    """A class for each element, of which the first is ignored where there are several."""
    found = torch.randint(0, CLASSES, shape, generator=torch.Generator().manual_seed(0))
    if found.numel() > 1:
        found.view(-1)[0] = -100
    return found


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("number", [1.3, -0.7, 0.0, math.inf, math.nan])
@pytest.mark.parametrize("reduction", [0, 1, 2], ids=["none", "mean", "sum"])
@pytest.mark.parametrize("is_weighted", [True, False], ids=["weighted", "plain"])
@pytest.mark.parametrize("shape", [(CLASSES,), (3, CLASSES), (0, CLASSES), (2, CLASSES, 2, 3)], ids=str)
def test_gradient_of_nll_loss_is_eagers(
    shape: tuple[int, ...], is_weighted: bool, reduction: int, number: float, dtype: torch.dtype
) -> None:
    x = torch.randn(shape, generator=torch.Generator().manual_seed(1)).to(dtype)
    target = targets((*shape[: len(shape) - 1][:1], *shape[2:]))
    weight = torch.tensor([0.5, -1.0, 0.0, 2.0, 3.0], dtype=dtype) if is_weighted else None
    grad = torch.full(target.shape if reduction == 0 else (), number, dtype=dtype)
    eager = aten.nll_loss2d_backward if len(shape) == 4 else aten.nll_loss_backward
    given = grad, x, target, weight, reduction, -100, torch.tensor(2.9, dtype=dtype)
    got, want = nll_loss_gradient(*given), eager(*given)
    torch.testing.assert_close(got, want, rtol=0, atol=0, equal_nan=True, check_stride=True)
    assert torch.equal(bits(got)[~want.isnan()], bits(want)[~want.isnan()])


@pytest.mark.parametrize("loss", [F.cross_entropy, F.nll_loss])
def test_ignored_targets_have_positive_zeros(loss: object) -> None:
    torch._dynamo.reset()
    journal.reset()
    x = torch.randn(4, CLASSES, requires_grad=True)
    torch.compile(loss, backend=assay)(x, torch.tensor([1, -100, 3, 0])).neg().backward()
    assert x.grad is not None and not bool(bits(x.grad[1]).any())
    assert not journal.totals()["eager_graphs"] and not journal.totals()["fallbacks"]
