"""Attention of halves whose mask lies otherwise than row by row goes to one kernel, not to float32 products."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F
from torch.profiler import ProfilerActivity, profile

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU"),
]
WRITTEN_OUT = "aten::bmm"
"""What torch falls back on: products and a softmax in float32."""
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


def operators_called(function: Callable[..., Any], given: Sequence[Tensor]) -> set[str]:
    with profile(activities=[ProfilerActivity.CPU]) as seen:
        function(*given)
    return {each.key for each in seen.key_averages()}


def check(found: Sequence[Tensor], eagers: Sequence[Tensor], exact: Sequence[Tensor], dtype: torch.dtype) -> None:
    for index, (ours, eager, best) in enumerate(zip(found, eagers, exact, strict=True)):
        scale = best.abs().max()
        own, theirs = (float((each.double() - best).abs().max() / scale) for each in (ours, eager))
        assert own < 2 * theirs + 4 * torch.finfo(dtype).eps, f"of {index}, ours is {own:.1e} off, eager {theirs:.1e}"


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_bias_that_is_looked_up(dtype: torch.dtype) -> None:
    torch._dynamo.reset()
    run = torch.compile(biased, backend="assay", options={"fallback": "error"})
    with torch.no_grad():
        exact = biased(*(value.double() for value in inputs(dtype)))
        check([run(*inputs(dtype))], [biased(*inputs(dtype))], [exact], dtype)
        assert WRITTEN_OUT not in operators_called(run, inputs(dtype))
        assert WRITTEN_OUT in operators_called(biased, inputs(dtype)), "torch has become faster: this is not needed"


def gradients(function: Callable[..., Tensor], given: Sequence[Tensor]) -> tuple[Tensor, ...]:
    result = function(*given)
    generator = torch.Generator("cuda").manual_seed(1)
    tangent = torch.randn(result.shape, device="cuda", generator=generator).to(result.dtype)
    return result, *torch.autograd.grad(result, given, tangent)


def test_bias_that_is_learned_has_eagers_gradient() -> None:
    torch._dynamo.reset()
    run = torch.compile(biased, backend="assay", options={"fallback": "error"})
    exact = gradients(biased, [value.detach().double().requires_grad_() for value in inputs(torch.bfloat16)])
    found = gradients(run, inputs(torch.bfloat16))
    check(found, gradients(biased, inputs(torch.bfloat16)), exact, torch.bfloat16)
