"""Searches in sorted rows against eager: every length, ties, NaN, infinities, dtypes, rows of several sequences."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch

from assay.compiler.entry.dynamo import assay, compile_fx_inner
from tests.lowering import check, error_of, traced

EDGES = [math.nan, math.inf, -math.inf, 0.0, -0.0, -3.0, 3.0]


def searches(row: torch.Tensor, values: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return (
        torch.bucketize(values, row),
        torch.bucketize(values, row, right=True),
        torch.searchsorted(row, values, out_int32=True),
        torch.searchsorted(row, values, side="right"),
    )


@pytest.mark.parametrize("length", [0, 1, 2, 5, 16, 17, 31, 32, 33, 100])
def test_search_of_rows_of_every_length_as_eager(length: int) -> None:
    row = torch.linspace(-3, 3, length)
    values = torch.cat([torch.tensor(EDGES), row, torch.linspace(-4, 4, 9)])
    assert not check(searches, row, values).counts.fallbacks


def test_search_for_a_number_as_eager() -> None:
    row = torch.linspace(-3, 3, 20)
    schedule = check(lambda r: (torch.searchsorted(r, 0.5), torch.bucketize(1.5, r, right=True)), row)
    assert not schedule.counts.fallbacks


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.int64, torch.int32, torch.uint8])
def test_search_dtypes_and_ties_as_eager(dtype: torch.dtype) -> None:
    row = torch.tensor([0, 1, 1, 1, 4, 4, 9] * 3).sort()[0].to(dtype)
    assert not check(searches, row, torch.arange(12).to(dtype)).counts.fallbacks


def test_search_of_several_rows_as_eager() -> None:
    rows = torch.randn(3, 2, 33, generator=torch.Generator().manual_seed(0)).sort(-1)[0]
    values = torch.randn(3, 2, 7, generator=torch.Generator().manual_seed(1))
    schedule = check(lambda r, v: (torch.searchsorted(r, v), torch.searchsorted(r[0, 0], v, right=True)), rows, values)
    assert not schedule.counts.fallbacks


def test_compiled_search_of_a_long_row_as_eager() -> None:
    row, values = torch.randn(3000).sort()[0], torch.randn(5000)
    function = lambda r, v: (torch.searchsorted(r, v), torch.bucketize(v * 2, r, right=True))
    found = compile_fx_inner(traced(function, row, values).module, [row, values])([row, values])
    for ours, theirs in zip(found, function(row, values), strict=True):
        assert torch.equal(ours, theirs)


def test_search_by_a_sorter_and_of_symbolic_length_is_left_to_aten() -> None:
    row = torch.tensor([3.0, 1.0, 2.0])
    assert check(lambda r: (torch.searchsorted(r, r, sorter=r.argsort()),), row).counts.fallbacks
    assert check(lambda r: (torch.bucketize(r, r.sort()[0]),), row, mode="symbolic").counts.fallbacks


def test_search_that_eager_rejects_raises_as_eager() -> None:
    rows, values = torch.randn(3, 4).sort(-1)[0], torch.randn(3, 5)
    wrong: tuple[Callable[[torch.Tensor, torch.Tensor], torch.Tensor], ...] = (
        lambda r, v: torch.bucketize(v, r),
        lambda r, v: torch.searchsorted(r, v[:2]),
        lambda r, v: torch.searchsorted(r, 0.5),
        lambda r, v: torch.searchsorted(r[0], v, right=True, side="left"),
    )
    for function in wrong:
        expected = error_of(function, rows, values)
        assert expected is not None
        found = error_of(torch.compile(function, backend=assay), rows, values)
        assert found is not None and issubclass(found, expected)
