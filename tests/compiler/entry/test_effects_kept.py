"""What is there to raise, raises: in forward and backward, whether or not its result is read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from assay.compiler.entry.dynamo import assay

GOOD = torch.tensor([[2.0, 1.0], [1.0, 3.0]])
SINGULAR = torch.zeros(2, 2)
Function = Callable[[Tensor], Tensor]


class AssertsInBackward(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        torch._assert_async(gradient.sum() < 100, "the gradient is large")
        return gradient


def inverse_that_is_not_read(x: Tensor) -> Tensor:
    torch.linalg.inv(x)
    return x + 1


def asserted(x: Tensor) -> Tensor:
    torch._assert_async((x != 0).any(), "all are zero")
    return x * 2


PROGRAMS: tuple[Function, ...] = (
    torch.linalg.inv,
    torch.linalg.cholesky,
    lambda x: torch.linalg.solve(x, x + 1),
    inverse_that_is_not_read,
    asserted,
)


def compiled(function: Function) -> Function:
    torch._dynamo.reset()
    return torch.compile(function, backend="assay", fullgraph=True, options={"fallback": "error"})


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("function", PROGRAMS, ids=["inv", "cholesky", "solve", "not_read", "asserted"])
def test_error_of_the_data_is_eagers(function: Function, grad: bool) -> None:
    run = compiled(function)
    good = GOOD.clone().requires_grad_(grad)
    torch.testing.assert_close(run(good), function(good), rtol=1e-5, atol=1e-6)
    with pytest.raises(RuntimeError) as theirs:
        function(SINGULAR.clone().requires_grad_(grad))
    with pytest.raises(RuntimeError) as ours:
        run(SINGULAR.clone().requires_grad_(grad))
    assert type(ours.value) is type(theirs.value)
    assert str(ours.value) == str(theirs.value)


def test_assertion_in_backward_raises_in_backward() -> None:
    run = compiled(AssertsInBackward.apply)
    x = GOOD.clone().requires_grad_()
    run(x).sum().backward()
    assert x.grad is not None and x.grad.eq(1).all()
    result = run(x)
    with pytest.raises(RuntimeError, match="the gradient is large"):
        result.backward(torch.full_like(result, 1000.0))


@pytest.mark.parametrize("is_read", [True, False])
@pytest.mark.parametrize("dim", [1, -2, 3])
def test_softmax_over_a_dimension_that_there_is_not_raises(dim: int, is_read: bool) -> None:
    """Its fake looks at no dimension; nor does anything else where nobody reads the result."""

    def function(x: Tensor) -> Tensor:
        y = x.softmax(dim)
        return y if is_read else x + 1

    torch._dynamo.reset()
    for run in (function, torch.compile(function, backend=assay)):
        for _ in range(2):
            with pytest.raises(IndexError, match="Dimension out of range"):
                run(torch.arange(4.0))
    assert torch.equal(torch.compile(lambda x: x.softmax(0), backend=assay)(torch.tensor(2.0)), torch.tensor(1.0))
