"""The gradient of a product, by the formula that eager chooses by the values."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch._C import DispatchKey

from assay.compiler.capture.decompositions.product_gradients import PRODUCTS, products_by_values

VALUES = (
    [1.5, -2.0, 3.0],
    [0.0, 2.0, 3.0],
    [0.0, 0.0, 3.0],
    [float("inf"), 2.0, 3.0],
    [float("nan"), 0.0, 1.0],
    [float("nan"), 0.0, 0.0],
)


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


TRANSFORMED: dict[str, Callable[[Tensor], Tensor]] = {
    "grad": torch.func.grad(torch.prod),
    "vmap of grad": lambda x: torch.func.vmap(torch.func.grad(torch.prod))(torch.stack([x, x + 1])),
    "grad of vmap": torch.func.grad(lambda x: torch.func.vmap(torch.prod)(torch.stack([x, x + 1])).sum()),
    "grad of grad": torch.func.grad(lambda x: torch.func.grad(torch.prod)(x).sum()),
    "vjp": lambda x: torch.func.vjp(torch.prod, x)[1](torch.ones(()))[0],
    "vjp along": lambda x: torch.func.vjp(lambda y: y.prod(0), x)[1](torch.ones(()))[0],
    "jvp": lambda x: torch.func.jvp(torch.prod, (x,), (torch.ones_like(x),))[1],
    "jvp along": lambda x: torch.func.jvp(lambda y: y.prod(0, keepdim=True), (x,), (torch.ones_like(x),))[1],
    "jacrev": torch.func.jacrev(lambda x: torch.stack([x, x * 2]).prod(1)),
    "hessian": torch.func.hessian(torch.prod),
}


@pytest.mark.parametrize("values", VALUES, ids=str)
@pytest.mark.parametrize("transformed", TRANSFORMED.values(), ids=TRANSFORMED.keys())
def test_gradients_by_transforms_are_eagers(transformed: Callable[[Tensor], Tensor], values: list[float]) -> None:
    x = torch.tensor(values)
    expected = transformed(x)
    with products_by_values():
        found = transformed(x)
    torch.testing.assert_close(found, expected, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("name", ["grad", "vjp", "jvp"])
def test_a_product_under_a_transform_is_compiled(name: str) -> None:
    x = torch.tensor([1.5, -2.0, 3.0])
    compiled = torch.compile(TRANSFORMED[name], backend="assay", options={"fallback": "error"})
    torch.testing.assert_close(compiled(x), TRANSFORMED[name](x))
