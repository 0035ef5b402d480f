"""Calls that eager refuses and torch's recordings let pass: a compiled program raises what eager raises."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F


def pooled(x: Tensor) -> Tensor:
    return F.max_pool3d(input=x, kernel_size=2)


def extremes(x: Tensor) -> Tensor:
    low, _ = torch.aminmax(x, dim=1, out=(torch.empty(2, dtype=torch.float64), torch.empty(2, dtype=torch.float64)))
    return low


REFUSED = [
    (pooled, torch.randn(2, 3, 6, 5).to(memory_format=torch.channels_last), "Unsupported memory format"),
    (extremes, torch.randn(2, 3), "Expected out tensor to have dtype float"),
]


@pytest.mark.parametrize(("program", "given", "message"), REFUSED, ids=lambda value: getattr(value, "__name__", ""))
def test_user_calls_raise_what_eager_raises(program: Callable[[Tensor], Tensor], given: Tensor, message: str) -> None:
    torch._dynamo.reset()
    for function in (program, torch.compile(program, backend="assay")):
        with warnings.catch_warnings(), pytest.raises(RuntimeError, match=message):
            warnings.simplefilter("ignore")
            function(given)


def test_user_calls_that_eager_takes_are_compiled() -> None:
    torch._dynamo.reset()
    given = torch.randn(2, 3, 6, 5)
    compiled = torch.compile(pooled, backend="assay", options={"fallback": "error"})
    assert torch.equal(compiled(given), pooled(given))
