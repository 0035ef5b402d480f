"""What a program in another dtype computes: products of groups, which ATen has not, and what might draw numbers."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from assay.harness.judge.float64 import WIDER, Recast

ENDS = torch.tensor([3, 3, 8], dtype=torch.int32)
FORMS = {
    "rows": ((8, 16), (3, 16, 32), ENDS),
    "columns": ((3, 32, 16), (16, 8), ENDS),
    "inner": ((16, 8), (8, 32), ENDS),
    "batch": ((3, 8, 16), (3, 16, 8), None),
}


def product(one: Tensor, other: Tensor, offs: Tensor | None) -> Tensor:
    return torch._grouped_mm(one, other, offs=offs)


@pytest.mark.parametrize("form", FORMS)
def test_products_of_groups_are_those_of_float32(form: str) -> None:
    shape, other_shape, offs = FORMS[form]
    one = torch.randn(shape)
    other = torch.randn(other_shape)
    if form in ("columns", "inner"):  # the layouts that ATen takes: a row of 16 bytes ends where a group does
        one, other = (each.mT.contiguous().mT for each in (one, other))
    wide = [each.double().requires_grad_() for each in (one, other)]
    with Recast(torch.float32, torch.float64, WIDER[torch.float64]):
        found = product(*wide, offs)
        found.backward(torch.ones_like(found))
    narrow = [each.requires_grad_() for each in (one, other)]
    expected = product(*narrow, offs)
    assert found.dtype == torch.float64
    torch.testing.assert_close(found, expected.double(), atol=1e-4, rtol=1e-4)
    expected.backward(torch.ones(expected.shape))
    for got, reference in zip(wide, narrow, strict=True):
        torch.testing.assert_close(got.grad, reference.grad.double(), atol=1e-4, rtol=1e-4)


def test_attention_that_draws_nothing_is_in_float64() -> None:
    q, k, v = (torch.randn(2, 4, 17, 16, generator=torch.Generator().manual_seed(n)).double() for n in range(3))
    with Recast(torch.float32, torch.float64, WIDER[torch.float64]):
        found = torch.nn.functional.scaled_dot_product_attention(q, k, v)
    expected = (q @ k.mT / 4).softmax(-1) @ v
    torch.testing.assert_close(found, expected, rtol=1e-13, atol=1e-13)


def test_draws_of_a_generator_of_the_programs_are_those_of_float32() -> None:
    def drawn(chances: Tensor) -> Tensor:
        return torch.bernoulli(chances, generator=torch.Generator().manual_seed(3))

    with Recast(torch.float32, torch.float64, WIDER[torch.float64]):
        found = drawn(torch.full((1000,), 0.5).double())
    assert found.dtype == torch.float64 and torch.equal(found.float(), drawn(torch.full((1000,), 0.5)))


def test_attention_with_dropout_drops_what_float32_drops() -> None:
    q, k, v = (torch.randn(2, 4, 17, 16, generator=torch.Generator().manual_seed(n)) for n in range(3))

    def dropped(*given: Tensor) -> Tensor:
        torch.manual_seed(3)
        return torch.nn.functional.scaled_dot_product_attention(*given, dropout_p=0.5)

    with Recast(torch.float32, torch.float64, WIDER[torch.float64]):
        found = dropped(q.double(), k.double(), v.double())
    torch.testing.assert_close(found.float(), dropped(q, k, v), rtol=1e-4, atol=1e-5)
