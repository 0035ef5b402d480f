"""Results lie as eager's where the kernels on fake tensors say otherwise."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn import functional

LAST, LAST_3D = torch.channels_last, torch.channels_last_3d
Function = Callable[[Tensor], Tensor]

CASES: dict[str, tuple[Function, Tensor]] = {
    "reflected volume": (
        lambda x: functional.pad(x, (1, 1, 1, 1, 1, 1), "reflect"),
        torch.randn(2, 3, 4, 5, 6).to(memory_format=LAST_3D),
    ),
    "replicated volume": (
        lambda x: functional.pad(x, (1, 0, 2, 1, 1, 1), "replicate"),
        torch.randn(2, 3, 4, 5, 6).to(memory_format=LAST_3D),
    ),
    "volume without a batch": (
        lambda x: functional.pad(x, (1, 1, 1, 1, 1, 1), "reflect"),
        torch.randn(3, 3, 5, 5).to(memory_format=LAST),
    ),
    "reflected image": (
        lambda x: functional.pad(x, (1, 2, 1, 0), "reflect"),
        torch.randn(2, 3, 5, 5).to(memory_format=LAST),
    ),
    "replicated image": (
        lambda x: functional.pad(x, (1, 2, 1, 0), "replicate"),
        torch.randn(2, 3, 5, 5).to(memory_format=LAST),
    ),
    "angle": (torch.angle, torch.randn(5, 4, dtype=torch.complex64).t()),
    "angle of real numbers": (torch.angle, torch.randn(5, 4).t()),
}


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_result_and_gradient_lie_as_eagers(name: str, dynamic: bool) -> None:
    function, given = CASES[name]
    torch._dynamo.reset()
    run = torch.compile(function, backend="assay", dynamic=dynamic, options={"fallback": "error"})
    found = []
    for call in (function, run):
        x = given.clone().requires_grad_() * 1
        x.retain_grad()
        y = call(x)
        y.backward(torch.ones_like(y, memory_format=torch.contiguous_format))
        assert x.grad is not None
        found.append((y, x.grad))
    for ours, theirs in zip(found[1], found[0], strict=True):
        assert ours.stride() == theirs.stride()
        torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("dynamic", [False, True])
def test_write_by_a_mask_that_broadcasts_keeps_columns(dynamic: bool) -> None:
    """`masked_fill` makes rows of columns and a mask that broadcasts; in place they stay columns."""

    def program(x: Tensor, mask: Tensor) -> tuple[Tensor, ...]:
        y = x * 2
        y.masked_fill_(mask, 0.0)
        return y, y.view_as(y), y + 1, y.flatten()

    x, mask = torch.randn(5, 4).t(), torch.tensor([[True], [False], [True], [False]])
    torch._dynamo.reset()
    run = torch.compile(program, backend="assay", dynamic=dynamic, options={"fallback": "error"})
    for ours, theirs in zip(run(x, mask), program(x, mask), strict=True):
        assert torch.equal(ours, theirs) and ours.stride() == theirs.stride()
