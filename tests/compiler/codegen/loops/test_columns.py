"""Reductions over rows in parts of the rows: which they are, and that they give what those by columns give."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor

from assay.compiler.codegen.cpp import reductions as cpp_reductions
from assay.compiler.codegen.cpp.kernel import emit_kernel
from assay.compiler.codegen.loops import columns
from assay.compiler.codegen.loops.columns import LEAST_ROWS
from assay.compiler.entry.dynamo import assay
from assay.compiler.machine import number
from tests import kernel_ir as ir
from tests.compiler.codegen.cpp.test_cpp_kernels import BOUNDS, RUNS
from tests.lowering import planned, traced
from tests.stated_numbers import state

IN_PARTS = "part*"


def text_of(function: Callable[..., Tensor], *args: Tensor) -> str:
    return "\n".join(emit_kernel(kernel) for kernel in planned(traced(lambda *x: (function(*x),), *args)).kernels)


def compiled(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    torch._dynamo.reset()
    return torch.compile(function, backend=assay, options={"fallback": "error"}, dynamic=False)


@pytest.fixture
def everything_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    state(monkeypatch, narrow_cut_elements=0, wide_cut_elements=0, fetched_columns=1, long_columns=1 << 20)
    monkeypatch.setattr(columns, "LEAST_ROWS", 1)
    monkeypatch.setattr(cpp_reductions, "PARALLEL_WORK", 0)


@pytest.mark.usefixtures("everything_in_parts")
def test_every_kernel_there_is_in_parts(tmp_path: Path) -> None:
    runs = [run for run in RUNS.values() if IN_PARTS in emit_kernel(run.kernel)]
    assert len(runs) >= 8
    functions = ir.load_runs(runs, tmp_path)
    for run in runs:
        got = ir.launch(functions[run.kernel.name], run)
        for buffer, expected in run.expected.items():
            largest = expected.double().abs().nan_to_num(0, 0, 0).max().item() if expected.numel() else 0.0
            bound = BOUNDS.get(expected.dtype, 0.0) * largest
            torch.testing.assert_close(got[buffer], expected, rtol=0, atol=bound, equal_nan=True)


@pytest.mark.parametrize(
    "shape", [(4096, 16), (1 << 16, 4), (30_001, 3), (5000, 250), (1025, 1030), (700, 5000)], ids=str
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.int32, torch.bool], ids=str)
def test_parts_of_rows_are_as_eager(shape: tuple[int, int], dtype: torch.dtype) -> None:
    """Of whole numbers every order of adding gives the same sum."""
    x = torch.randint(-9, 9, shape, dtype=torch.int32).to(dtype)

    def function(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return x.sum(0), x.amax(0), (x != 3).all(0)

    assert IN_PARTS in text_of(lambda x: x.sum(0), x)
    for ours, eager in zip(compiled(function)(x), function(x), strict=True):
        torch.testing.assert_close(ours, eager, rtol=0, atol=0)


def test_parts_of_rows_have_lanes_for_any_number_of_reductions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lanes for fewer columns than a vector has would be none, and a loop over tiles of none would not end."""
    x = torch.randint(-9, 9, (1 << 15, 16)).float()
    several = text_of(lambda x: sum((x - k).sum(0) for k in range(number("column_lanes") // 64 + 2)), x)
    assert IN_PARTS in several and "tile += 0" not in several
    state(monkeypatch, column_lanes=1)
    assert "tile += 64" in text_of(lambda x: x.sum(0), x)
    assert torch.equal(compiled(lambda x: x.sum(0))(x), x.sum(0))


def test_parts_of_rows_err_at_most_as_eager() -> None:
    x = torch.rand(1 << 16, 200)  # of one sign: rounding only adds up
    exact = x.double().sum(0)
    ours, eager = compiled(lambda x: x.sum(0))(x), x.sum(0)
    assert (ours - exact).abs().max() <= (eager - exact).abs().max()


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("row", [0, 1033, 4999])
def test_parts_of_rows_with_a_number_that_is_none(value: float, row: int) -> None:
    x = torch.randint(-9, 9, (5000, 64)).float()
    x[row, 7], x[row, 63] = value, value

    def function(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return x.amax(0), x.amin(0), x.sum(0)

    for ours, eager in zip(compiled(function)(x), function(x), strict=True):
        torch.testing.assert_close(ours, eager, rtol=0, atol=0, equal_nan=True)


def test_parts_of_rows_are_the_same_for_any_number_of_threads() -> None:
    x = torch.randn(9000, 100)
    run, before, results = compiled(lambda x: (x * 2).sum(0)), torch.get_num_threads(), []
    try:
        for threads in (1, 2, 3, 8):
            torch.set_num_threads(threads)
            results.append(run(x))
    finally:
        torch.set_num_threads(before)
    assert all(torch.equal(result, results[0]) for result in results)


def test_parts_of_rows_check_what_they_read() -> None:
    """An index out of range, in a row of the last part."""
    table, ids = torch.randint(-9, 9, (10, 16)).float(), torch.randint(10, (8192,))
    run = compiled(lambda table, ids: torch.nn.functional.embedding(ids, table).sum(0))
    torch.testing.assert_close(run(table, ids), table[ids].sum(0))
    ids[8190] = 10
    with pytest.raises(IndexError):
        run(table, ids)


def test_parts_of_rows_are_for_what_is_narrow_or_large() -> None:
    def total(x: Tensor) -> Tensor:
        return x.sum(0)

    rows = 2 * number("narrow_cut_elements") // 64
    assert IN_PARTS in text_of(total, torch.empty(rows, 64))
    assert IN_PARTS not in text_of(total, torch.empty(rows // 4, 64)), "a core's own cache holds it"
    assert IN_PARTS not in text_of(total, torch.empty(384, 1024)), "enough columns for all threads"
    assert IN_PARTS in text_of(total, torch.empty(4096, 1024))
    assert IN_PARTS not in text_of(total, torch.empty(LEAST_ROWS * 3, 1 << 15)), "joining would take too long"
    assert IN_PARTS not in text_of(lambda x: x.softmax(0), torch.empty(4096, 1024)), "one pass waits for another"


def test_memory_of_later_rows_is_asked_for_within_reason() -> None:
    def total(x: Tensor) -> Tensor:
        return (x * 2).sum(0)

    assert "m::fetch(in0 + 256*r0 + tile + 1024, width)" in text_of(total, torch.empty(8192, 256))  # four rows later
    assert all("m::fetch" not in text_of(total, torch.empty(1 << 23 >> k, 1 << k)) for k in (5, 12))
