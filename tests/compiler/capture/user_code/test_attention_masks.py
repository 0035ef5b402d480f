"""Masks of attention that are true everywhere are left out; all others stay, laid out row by row on a GPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, fx
from torch._subclasses import FakeTensorMode
from torch.nn import functional as F

from assay.compiler.capture.user_code.attention_masks import has_true_mask, laid_out, row_by_row
from assay.compiler.entry.dynamo import assay

Attention = Callable[[Tensor, Tensor, Tensor], Tensor]


def of_positions(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    at = torch.arange(q.shape[2], device=q.device) + 0
    mask = (at[None, None, :, None] >= 0).expand(q.shape[0], -1, q.shape[2], k.shape[2])
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)


def by_position(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(q, k, v, torch.ones(5, 5, dtype=torch.bool) & True)


def causal(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    at = torch.arange(q.shape[2])
    return F.scaled_dot_product_attention(q, k, v, attn_mask=at[:, None] >= at[None])


def of_data(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(q, k, v, attn_mask=(k[..., 0] < 100)[:, :, None])


def of_floats(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(q, k, v, attn_mask=torch.ones(5, 5))


def random(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(q, k, v, attn_mask=torch.rand(5, 5) < 2)


FUNCTIONS: dict[Attention, bool] = {
    of_positions: True, by_position: True, causal: False, of_data: False, of_floats: False, random: False,
}  # fmt: skip


def inputs() -> tuple[Tensor, Tensor, Tensor]:
    torch.manual_seed(0)
    q, k, v = (torch.randn(2, 3, 5, 8, requires_grad=True) for _ in range(3))
    return q, k, v


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: function.__name__)
def test_has_true_mask(function: Attention) -> None:
    found: list[bool] = []

    def backend(gm: fx.GraphModule, _: list[Tensor]) -> Callable[..., Any]:
        found.extend(has_true_mask(node) for node in gm.graph.nodes if node.target is F.scaled_dot_product_attention)
        return gm.forward

    torch._dynamo.reset()
    torch.compile(function, backend=backend)(*inputs())
    assert found == [FUNCTIONS[function]]


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: function.__name__)
def test_attention_is_eagers(function: Attention, dynamic: bool) -> None:
    torch._dynamo.reset()
    given, others = inputs(), inputs()
    got, want = (
        torch.compile(function, backend=assay, dynamic=dynamic, options={"fallback": "error"})(*given),
        function(*others),
    )
    torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-6)
    got.sum().backward()
    want.sum().backward()
    for one, other in zip(given, others, strict=True):
        torch.testing.assert_close(one.grad, other.grad, rtol=1e-5, atol=1e-5)


LAID_OUT = [
    (torch.randn(1, 5, 6, 3).permute(0, 3, 1, 2).expand(2, -1, -1, -1), (0, 30, 6, 1)),
    (torch.randn(6, 5).t(), (6, 1)),
    (torch.randn(5, 1).expand(5, 6), (6, 1)),
    (torch.randn(4, 1, 5, 6).expand(4, 3, 5, 6), None),
    (torch.randn(5, 6)[:, :1], None),
    (torch.randn(12)[::2], (1,)),
    (torch.tensor(True), None),
]


@pytest.mark.parametrize(("mask", "strides"), LAID_OUT, ids=lambda value: None)
def test_row_by_row(mask: Tensor, strides: tuple[int, ...] | None) -> None:
    found = row_by_row(mask)
    assert torch.equal(found, mask)
    assert found is mask if strides is None else found.stride() == strides


def test_only_halves_on_a_gpu_are_laid_out() -> None:
    with FakeTensorMode():
        apart = torch.empty(6, 5).t()
        single, half = (torch.empty(2, 3, 5, 8, dtype=dtype) for dtype in (torch.float32, torch.bfloat16))
        on_a_gpu = torch.empty(2, 3, 5, 8, device="cuda")
        for query in (single, half, on_a_gpu):
            assert laid_out((query, query, query, apart), {})[0][3] is apart
        laid = laid_out((), {"query": torch.empty_like(on_a_gpu, dtype=torch.float16), "attn_mask": apart})[1]
        assert laid["attn_mask"].stride() == (6, 1)
        learned = torch.empty(6, 5, requires_grad=True).t()
        assert laid_out((on_a_gpu.half(),) * 3, {"attn_mask": learned})[1]["attn_mask"] is learned
