"""Attention of halves whose mask lies otherwise than row by row goes to one kernel, not to float32 products."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F
from torch.profiler import ProfilerActivity, profile

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU"),
]
HEADS, LENGTH, WIDTH, BUCKETS = 8, 128, 64, 32


def biased(q: Tensor, k: Tensor, v: Tensor, table: Tensor) -> Tensor:
    """The bias of a pair of positions is looked up by how far apart they are, for all heads at once."""
    at = torch.arange(q.shape[2], device=q.device)
    far = (at[:, None] - at[None]).clamp(1 - BUCKETS, 0).neg()
    bias = F.embedding(far, table).permute(2, 0, 1)[None]
    return F.scaled_dot_product_attention(q, k, v, attn_mask=bias, scale=1.0)


def inputs(dtype: torch.dtype) -> list[Tensor]:
    generator = torch.Generator("cuda").manual_seed(0)
    shapes = [(2, HEADS, LENGTH, WIDTH)] * 3 + [(BUCKETS, HEADS)]
    made = [torch.randn(shape, device="cuda", generator=generator).mul(0.5).to(dtype) for shape in shapes]
    return [value.requires_grad_() for value in made]


def values_and_gradients(function: object, given: list[Tensor]) -> list[Tensor]:
    result = function(*given)  # type: ignore[operator]
    weights = torch.linspace(-1, 1, result.numel(), device="cuda", dtype=result.dtype).view_as(result)
    return [result, *torch.autograd.grad((result * weights).sum(), given)]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_bias_that_is_looked_up(dtype: torch.dtype) -> None:
    torch._dynamo.reset()
    run = torch.compile(biased, backend="assay", options={"fallback": "error"})
    found = values_and_gradients(run, inputs(dtype))
    eagers = values_and_gradients(biased, inputs(dtype))
    exact = values_and_gradients(biased, [value.detach().double().requires_grad_() for value in inputs(dtype)])
    for ours, eager, best in zip(found, eagers, exact, strict=True):
        scale = best.abs().max()
        own, theirs = ((each.double() - best).abs().max() / scale for each in (ours, eager))
        assert own < 2 * theirs + 4 * torch.finfo(dtype).eps, (own, theirs)
    with profile(activities=[ProfilerActivity.CPU]) as seen:
        run(*inputs(dtype))
    called = {each.key for each in seen.key_averages()}
    assert "aten::_scaled_dot_product_efficient_attention" in called, called
