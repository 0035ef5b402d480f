"""Jagged tensors that a graph makes itself, of values and offsets, have compiled gradients."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from assay.compiler import journal


def rows(x: Tensor, offsets: Tensor) -> Tensor:
    made: Tensor = torch.nested.nested_tensor_from_jagged(x, offsets)
    return made


def summed(x: Tensor, offsets: Tensor) -> Tensor:
    return (rows(x, offsets).sin() * 2).values().sum(0)


def padded(x: Tensor, offsets: Tensor) -> Tensor:
    return torch.nested.to_padded_tensor(rows(x, offsets) * 2, 1.5).sin()


def projected(x: Tensor, offsets: Tensor) -> Tensor:
    return torch.softmax(rows(x, offsets) @ torch.ones(8, 3), -1).values()


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("program", [summed, padded, projected])
def test_gradients_of_jagged_tensors_made_inside_are_compiled(
    program: Callable[[Tensor, Tensor], Tensor], dynamic: bool | None
) -> None:
    torch._dynamo.reset()
    journal.reset()
    compiled = torch.compile(program, backend="assay", dynamic=dynamic)
    for ends in ([0, 2, 3, 6], [0, 1, 5, 7]):
        torch.manual_seed(0)
        x, offsets = torch.randn(ends[-1], 8, requires_grad=True), torch.tensor(ends)
        found, wanted = compiled(x, offsets), program(x, offsets)
        torch.testing.assert_close(found, wanted)
        gradients = [torch.autograd.grad((result * result).sum(), x) for result in (found, wanted)]
        torch.testing.assert_close(*gradients)
    assert journal.totals()["eager_graphs"] == 0
