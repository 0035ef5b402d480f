"""The gradient of a product, by the formula that eager chooses by the values."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch._C import DispatchKey

from assay.compiler.capture.decompositions.product_gradients import PRODUCTS, products_by_values

VALUES = ([1.5, -2.0, 3.0], [0.0, 2.0, 3.0], [0.0, 0.0, 3.0], [float("inf"), 2.0, 3.0], [float("nan"), 0.0, 1.0], [float("nan"), 0.0, 0.0])


def gradients(x: Tensor) -> list[Tensor]:
    leaf = x.clone().requires_grad_()
    return [torch.autograd.grad(made, leaf)[0] for made in (leaf.prod(), leaf.prod(0).sum(), leaf.prod(0, True).sum())]


@pytest.mark.parametrize("values", VALUES, ids=str)
def test_gradients_are_eagers_with_zeros_and_without(values: list[float]) -> None:
    x = torch.tensor([values, [2.0, 3.0, 5.0]]).t()
    expected = gradients(x)
    with products_by_values():
        found = gradients(x)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=0, equal_nan=True)


def test_one_recording_within_another_leaves_it_as_it_was() -> None:
    before = [dict(op.py_kernels) for op in PRODUCTS]
    with products_by_values():
        outer = [op.py_kernels[DispatchKey.Autograd] for op in PRODUCTS]
        with products_by_values():
            assert [op.py_kernels[DispatchKey.Autograd] for op in PRODUCTS] != outer
        assert [op.py_kernels[DispatchKey.Autograd] for op in PRODUCTS] == outer
    assert [dict(op.py_kernels) for op in PRODUCTS] == before
