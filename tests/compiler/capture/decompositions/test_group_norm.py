"""Group norm taken apart, on a GPU too: statistics joined from those of channels, gradients from sums of positions."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from assay.compiler import journal
from assay.compiler.capture.decompositions.group_norm import group_norm, group_norm_gradients

SHAPES = [(4, 6, 5, 7), (2, 12, 33), (3, 8), (2, 6, 4, 3, 2)]
GPU = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")]
DEVICES = ["cpu", pytest.param("cuda", marks=GPU)]


def sizes(x: Tensor, groups: int) -> tuple[int, int, int, int]:
    """What the operator is told of `x[n, c, ...]`: n, c, positions, groups."""
    return x.shape[0], x.shape[1], x.shape[2:].numel(), groups


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("offset", [0.0, 1000.0])
def test_statistics_are_those_of_the_group(shape: tuple[int, ...], offset: float) -> None:
    torch.manual_seed(0)
    x = torch.randn(shape) + offset
    _, mean, rstd = group_norm(x, None, None, *sizes(x, 2), 1e-5)
    of_groups = x.double().view(shape[0], 2, -1)
    torch.testing.assert_close(mean.double(), of_groups.mean(2), rtol=1e-6, atol=1e-6)
    expected = of_groups.var(2, correction=0).add(1e-5).rsqrt()
    torch.testing.assert_close(rstd.double(), expected, rtol=1e-5 if offset else 1e-6, atol=0.0)


def test_a_gradient_of_a_group_sums_to_nothing_though_its_mean_is_rounded() -> None:
    torch.manual_seed(0)
    x, grad = torch.randn(4, 6, 50) * 3 + 5, torch.randn(4, 6, 50)
    mean, rstd = x.view(4, 2, -1).mean(2), x.view(4, 2, -1).var(2, correction=0).rsqrt()
    rounded = mean.bfloat16().float()
    assert (rounded - mean).abs().max() > 1e-3
    to_x, _, _ = group_norm_gradients(grad, x, rounded, rstd, None, *sizes(x, 2), [True, True, True])
    assert to_x is not None
    assert to_x.view(4, 2, -1).sum(2).abs().max() < 1e-4


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("affine", [False, True])
def test_group_norm_is_generated_and_as_near_to_float64_as_eager(
    shape: tuple[int, ...], affine: bool, device: str
) -> None:
    torch.manual_seed(0)
    x, tangent = torch.randn(shape, device=device), torch.randn(shape, device=device)
    factors = [torch.randn(shape[1], device=device) for _ in range(2)] if affine else []

    def norm(x: Tensor, *factors: Tensor) -> Tensor:
        return F.group_norm(x, 2, *factors)

    def gradients(function: object, dtype: torch.dtype) -> list[Tensor]:
        given = [value.to(dtype).requires_grad_() for value in (x, *factors)]
        result = function(*given)  # type: ignore[operator]
        return [result.detach(), *torch.autograd.grad(result, given, tangent.to(dtype))]

    before = journal.totals()["fallbacks"]
    ours = gradients(torch.compile(norm, backend="assay", options={"fallback": "error"}), torch.float32)
    assert journal.totals()["fallbacks"] == before
    for mine, eager, exact in zip(ours, gradients(norm, torch.float32), gradients(norm, torch.float64), strict=True):
        own = (eager - exact).abs().max()
        assert (mine - exact).abs().max() <= 2 * own + 4e-7 * exact.abs().max()


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")
def test_what_the_kernel_of_a_gpu_refuses_is_refused() -> None:
    x, w = torch.randn(2, 6, 4, device="cuda", dtype=torch.bfloat16), torch.randn(6, device="cuda")
    with pytest.raises(RuntimeError):
        torch.native_group_norm(x, w, w, 2, 6, 4, 2, 1e-5)
    with pytest.raises(RuntimeError):
        torch.compile(torch.native_group_norm, backend="assay")(x, w, w, 2, 6, 4, 2, 1e-5)
