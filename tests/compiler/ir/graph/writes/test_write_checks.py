"""Writes that torch records wrongly, or not at all."""

from __future__ import annotations

import torch
from torch import Tensor

from assay.compiler.journal import reset, totals


@torch.library.custom_op("assay_tests::increment_rows", mutates_args=("x",))
def increment_rows(x: Tensor) -> None:
    x.add_(1)


increment_rows.register_fake(lambda x: None)


def f(x: Tensor) -> Tensor:
    increment_rows(x[:0])
    return x + 1


def test_an_operator_that_writes_no_rows_of_an_expanded_tensor_is_eagers() -> None:
    reset()
    given = torch.ones(0).expand(1, -1)
    assert torch.compile(f, backend="assay")(given).shape == f(given).shape
    (reason,) = totals()["eager"]  # type: ignore[misc]
    assert "no elements of an expanded tensor" in reason and not totals()["eager_graphs"]
