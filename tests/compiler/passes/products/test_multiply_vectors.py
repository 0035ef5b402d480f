"""Products with a vector become sums that kernels compute, where they are few enough to matter."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from assay.compiler.ir.graph.roles import Program
from assay.compiler.passes.products.multiply_vectors import multiply_vectors
from tests.lowering import traced

Function = Callable[..., tuple[Tensor, ...]]

SHAPES = {
    "outer": ((4, 5, 1), (4, 1, 7)),
    "by a column": ((4, 5, 6), (4, 6, 1)),
    "by a row": ((4, 1, 6), (4, 6, 7)),
    "two vectors": ((4, 1, 6), (4, 6, 1)),
    "one number": ((4, 1, 1), (4, 1, 1)),
}


def product(a: Tensor, c: Tensor) -> tuple[Tensor, ...]:
    return (torch.bmm(a, c),)


def rewritten(*shapes: tuple[int, ...], dtype: torch.dtype = torch.float32) -> tuple[Program, int]:
    program = traced(product, *(torch.randn(shape, dtype=dtype) for shape in shapes))
    return program, multiply_vectors(program)


@pytest.mark.parametrize("name", SHAPES)
def test_product_with_a_vector_is_a_sum(name: str) -> None:
    program, changed = rewritten(*SHAPES[name])
    targets = [node.target for node in program.module.graph.nodes]
    assert changed == 1 and torch.ops.aten.bmm.default not in targets
    a, c = (torch.randn(shape) for shape in SHAPES[name])
    (found,) = program.module(a, c)
    torch.testing.assert_close(found, torch.bmm(a, c))
    assert found.is_contiguous()


@pytest.mark.parametrize(
    ("shapes", "dtype"),
    [
        (((4, 5, 6), (4, 6, 7)), torch.float32),
        (((4, 512, 512), (4, 512, 1)), torch.float32),
        (((4, 5, 1), (4, 1, 7)), torch.bfloat16),
        (((4, 5, 0), (4, 0, 1)), torch.float32),
    ],
    ids=["matrices", "large", "halves", "empty"],
)
def test_other_products_stay(shapes: tuple[tuple[int, ...], ...], dtype: torch.dtype) -> None:
    assert rewritten(*shapes, dtype=dtype)[1] == 0


@pytest.mark.parametrize("name", SHAPES)
def test_compiled_product_and_its_gradients_are_eagers(name: str) -> None:
    def program(a: Tensor, c: Tensor) -> Tensor:
        return torch.bmm(a.transpose(1, 2).transpose(1, 2) * 2, c.exp()).tanh()

    torch._dynamo.reset()
    run = torch.compile(program, backend="assay", options={"fallback": "error"})
    for lie in (lambda x: x, lambda x: x.transpose(0, 2).contiguous().transpose(0, 2)):
        a, c = (lie(torch.randn(shape)).requires_grad_() for shape in SHAPES[name])
        ours, theirs = run(a, c), program(a, c)
        torch.testing.assert_close(ours, theirs)
        assert ours.stride() == theirs.stride()
        cotangent = torch.randn(theirs.shape)
        found = [torch.autograd.grad(y, (a, c), cotangent) for y in (ours, theirs)]
        for one, other in zip(*found, strict=True):
            torch.testing.assert_close(one, other)


def test_outer_product_has_no_negative_zero() -> None:
    """The library adds each product to 0."""
    a, c = torch.tensor([-1.0, 2.0, 0.0]).view(1, 3, 1), torch.tensor([0.0, 1.0, -1.0, 3.0]).view(1, 1, 4)
    torch._dynamo.reset()
    found = torch.compile(torch.bmm, backend="assay", options={"fallback": "error"})(a, c)
    assert torch.equal(found.signbit(), torch.bmm(a, c).signbit()) and (a * c).signbit().sum() > found.signbit().sum()
