"""Stores past the caches: which they are, and that they write what others do."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from assay.compiler.codegen.cpp.kernel import emit_kernel
from assay.compiler.codegen.loops.streaming import streamed_buffers
from assay.compiler.ir.loops.index import Index
from assay.compiler.ir.loops.kernel import Kernel
from assay.compiler.machine import number
from tests import kernel_ir as ir
from tests.compiler.codegen.cpp.test_cpp_kernels import RUNS
from tests.kernel_ir import F32, accumulate, call, i, j, load, loops, n, store
from tests.stated_numbers import state

LARGE = number("streamed_kernel_bytes") // 8

Results = dict[str, dict[str, torch.Tensor]]


def everything_streams(patch: pytest.MonkeyPatch) -> None:
    state(patch, streamed_kernel_bytes=0, streamed_buffer_bytes=0, streamed_item_bytes=0)


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> tuple[Results, Results]:
    """Of every kernel there is: with its stores past the caches wherever they can be, and with none."""
    runs = list(RUNS.values())
    with pytest.MonkeyPatch.context() as patch:
        everything_streams(patch)
        assert sum("m::stream" in emit_kernel(run.kernel) for run in runs) > len(runs) // 3
        streamed = ir.load_runs(runs, tmp_path_factory.mktemp("streamed"))
    stored = ir.load_runs(runs, tmp_path_factory.mktemp("stored"))
    first, second = (
        {name: ir.launch(functions[run.kernel.name], run) for name, run in RUNS.items()}
        for functions in (streamed, stored)
    )
    return first, second


@pytest.mark.parametrize("name", RUNS)
def test_streamed_values_are_those_of_other_stores(name: str, results: tuple[Results, Results]) -> None:
    """The sizes end within a line of memory, and rows begin within one."""
    streamed, stored = results
    for buffer, expected in stored[name].items():
        torch.testing.assert_close(streamed[name][buffer], expected, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("offset", [0, 1, 15, 16, 17])
@pytest.mark.parametrize("count", [64, 100, 1 << 17])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.bool], ids=str)
def test_streamed_lines_begin_anywhere_in_memory(
    offset: int, count: int, dtype: torch.dtype, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing beside the tensor is written."""
    everything_streams(monkeypatch)
    x = torch.arange(count).remainder(2).to(dtype)
    made = ir.make_run(loops(i=count), [store("y", i, load("x", i, dtype))], {"x": x}, {"y": x})
    assert "m::stream" in emit_kernel(made.kernel)
    function = ir.load_runs([made], tmp_path)[made.kernel.name]
    memory = torch.full((count + 64,), 1, dtype=dtype)
    expected = memory.clone()
    expected[offset : offset + count] = x
    function(x.data_ptr(), memory[offset:].data_ptr())
    assert torch.equal(memory, expected)


def copied(size: Index | int, dtype: torch.dtype = F32) -> Kernel:
    symbols = ("n",) if size is n else ()
    buffers = [ir.Buffer(name, dtype, ir.as_index(size)) for name in "xy"]
    return ir.kernel(loops(i=size), [store("y", i, load("x", i, dtype))], buffers, symbols)


def test_streamed_is_what_no_cache_holds_and_nobody_reads() -> None:
    assert streamed_buffers(copied(LARGE)) == {"y"}
    assert streamed_buffers(copied(LARGE - 1)) == streamed_buffers(copied(n)) == frozenset()
    assert streamed_buffers(copied(4 * LARGE, torch.bfloat16)) == frozenset()
    x, y = (ir.Buffer(name, F32, ir.as_index(LARGE)) for name in "xy")
    added = call("add", load("x", i), load("y", i))
    in_place = ir.kernel(loops(i=LARGE), [store("y", i, added)], [x, y])
    summed = ir.kernel(loops(i=LARGE), [accumulate("y", i, load("x", i))], [x, y])
    assert streamed_buffers(in_place) == streamed_buffers(summed) == frozenset()


@pytest.mark.parametrize("is_transposed", [False, True])
def test_threads_drain_their_own_stores(is_transposed: bool) -> None:
    rows = LARGE // 1024
    there = j * rows + i if is_transposed else i * 1024 + j
    buffers = [ir.Buffer(name, F32, ir.as_index(LARGE)) for name in "xy"]
    text = emit_kernel(ir.kernel(loops(i=rows, j=1024), [store("y", i * 1024 + j, load("x", there))], buffers))
    assert text.count("#pragma omp parallel\n") == text.count("nowait\n") == text.count("m::drain();") == 1
    assert text.index("nowait") < text.index("m::stream") < text.index("m::drain")


def test_streamed_results_of_a_program_are_as_eager() -> None:
    x = torch.randn(LARGE // 1000, 1000)
    f = lambda x: (x * 2, x.cumsum(0), x.softmax(1))
    for ours, eager in zip(torch.compile(f, backend="assay")(x), f(x), strict=True):
        torch.testing.assert_close(ours, eager)
