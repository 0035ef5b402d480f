"""Numbers beyond 64 bits in programs that are compiled for one number alone."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from assay.compiler.entry.dynamo import assay

LEAST, GREATEST = -(1 << 63), (1 << 63) - 1


def begins(x: Tensor, n: int) -> tuple[Tensor, Tensor]:
    return x[1 - n :] * 2, x.nan_to_num(posinf=n)


def ends(x: Tensor, n: int) -> tuple[Tensor, Tensor]:
    return x[1:, : x.shape[1] - n] * 2, x.nan_to_num(posinf=n)


def written(x: Tensor, n: int) -> tuple[Tensor, Tensor]:
    y = x * 1
    y[: x.shape[0] - n] = 7
    return y, x.nan_to_num(posinf=n)


def compared(x: Tensor, n: int) -> tuple[Tensor, Tensor]:
    return x == n * 2, x.nan_to_num(posinf=n)


@pytest.mark.parametrize("f", [begins, ends, written, compared])
def test_a_number_that_is_computed_beyond_64_bits_is_as_in_eager(f: object) -> None:
    numbers = (2, 3, GREATEST) if f is compared else (2, LEAST, GREATEST)  # eager compares with none below 64 bits
    compiled = torch.compile(f, backend=assay, options={"fallback": "error"})  # type: ignore[call-overload]
    for n in numbers:
        for mine, eager in zip(compiled(x := torch.randn(4, 3), n), f(x, n), strict=True):  # type: ignore[operator]
            assert torch.equal(mine, eager) and mine.shape == eager.shape, n
