"""Products of matrices by tiles, with no GPU: interpreted beside eager, compiled for one, and chosen by a stand-in."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from assay.compiler import journal
from assay.compiler.codegen.triton.products import product_in
from assay.compiler.codegen.triton.programs import emit_programs
from assay.compiler.codegen.triton.tile_sizes import PRODUCTS, tiles_of_product
from assay.compiler.errors import Unsupported
from assay.compiler.ir.loops.kernel import CallAten, Kernel, Launch, Reuse, Schedule, Tiles
from assay.compiler.ir.loops.verify import verify_schedule
from assay.compiler.journal import Journal
from assay.compiler.ops import lower
from assay.compiler.ops.lower import ON_CPU
from assay.compiler.options import Options
from assay.compiler.schedule.fuse import fuse
from assay.compiler.schedule.order import plan
from assay.compiler.schedule.products import Region
from assay.reference.loops import as_function
from tests import kernel_ir as ir
from tests.compiler.toolchain.gpu.test_compiled_kernels import launches as launches  # the stand-in for a GPU
from tests.lowering import executable, planned, traced
from tests.product_programs import CASES, TILES, Case, by_tiles, drawn, run, runs
from tests.sources import ROOT
from tests.stated_numbers import state

for_gpu = pytest.importorskip("assay.harness.backends.for_gpu", reason="needs Triton")
BOUNDS = {torch.bfloat16: 2**-7, torch.float16: 2**-9, torch.float32: 2**-7, torch.bool: 0.0}
"""The share of the largest element that a rounding before and one behind the epilogue may come to."""
RUNS = runs()
DEVICE = torch.device("cuda", 0)


# ---- numbers -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def interpreted(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Tensor, ...]]:
    folder, root = tmp_path_factory.mktemp("interpreted"), ROOT
    command = [sys.executable, "-m", "tests.product_programs", str(folder / "cache"), str(folder / "results")]
    environment = os.environ | {"TRITON_INTERPRET": "1", "PYTHONPATH": str(root)}
    done = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found: dict[str, tuple[Tensor, ...]] = torch.load(folder / "results")
    return found


def assert_near(found: Sequence[Tensor], expected: Sequence[Tensor], exact: Sequence[Tensor]) -> None:
    """Dtype, shape and stride are eager's; numbers as near to float64's as eager's and two roundings more."""
    for ours, theirs, real in zip(found, expected, exact, strict=True):
        assert (ours.dtype, ours.shape) == (theirs.dtype, theirs.shape)
        assert ours.numel() < 2 or ours.stride() == theirs.stride()
        if theirs.dtype is torch.bool:
            assert torch.equal(ours, theirs)
        elif theirs.numel():
            largest = float(real.abs().max())
            of_eager = float((theirs.double() - real).abs().max())
            assert float((ours.double() - real).abs().max()) <= of_eager + BOUNDS[theirs.dtype] * largest


@pytest.mark.parametrize("name", RUNS)
def test_products_by_tiles_are_as_eager(name: str, interpreted: dict[str, tuple[Tensor, ...]]) -> None:
    case, dtype, _, _ = RUNS[name]
    arguments = case.arguments(dtype)
    assert_near(interpreted[name], case.function(*arguments), case.function(*(a.double() for a in arguments)))


def test_random_numbers_behind_a_product_are_those_of_its_elements(interpreted: dict[str, tuple[Tensor, ...]]) -> None:
    run = drawn()
    expected = ir.launch(as_function(run.kernel), run)["y"]
    (found,) = interpreted["drawn"]
    assert 0.3 < (expected != 0).double().mean() < 0.7
    assert torch.equal(found != 0, expected != 0)


@pytest.mark.parametrize("name", CASES)
def test_products_become_one_kernel_with_what_is_around_them(name: str) -> None:
    case = CASES[name]
    schedule = by_tiles(case, case.arguments(torch.bfloat16))
    tiled = [kernel for kernel in schedule.kernels if kernel.tiles is not None]
    assert len(tiled) == case.products and len(schedule.kernels) - len(tiled) == case.kernels
    assert all(product_in(kernel) is not None for kernel in tiled)


@pytest.mark.parametrize("name", ["a column added", "one row", "operands rounded", "product kept"])
def test_products_mean_the_same_to_the_reference(name: str) -> None:
    """The kernel is loop IR like any other: nested loops over numbers compute it."""
    case = CASES[name]
    arguments = case.arguments(torch.bfloat16)
    schedule = by_tiles(case, arguments)
    found = run(schedule, arguments, {kernel.name: as_function(kernel) for kernel in schedule.kernels})
    assert_near(found, case.function(*arguments), case.function(*(a.double() for a in arguments)))


@pytest.mark.parametrize("name", CASES)
def test_either_way_of_a_region_is_a_schedule(name: str) -> None:
    case, seen = CASES[name], list[Region]()
    arguments = case.arguments(torch.bfloat16)
    planned(traced(case.function, *arguments), choose=lambda regions: [seen.append(r) for r in regions])  # type: ignore[arg-type,func-returns-value]
    assert len(seen) >= case.products
    for region in seen:
        library, ours = region.by_library(), region.by_tiles(TILES)
        verify_schedule(library)
        verify_schedule(ours)
        assert library.inputs == ours.inputs and library.outputs == ours.outputs
        assert not any(isinstance(step, CallAten) for step in ours.steps)


# ---- what may be part of a product -----------------------------------------------------------------------------------


def tiled(function: Callable[..., tuple[Tensor, ...]], *shapes: tuple[int, ...], **more: Any) -> Schedule:
    return by_tiles(Case(function, shapes), Case(function, shapes).arguments(torch.bfloat16), **more)


def kernels_by_tiles(schedule: Schedule) -> int:
    return sum(kernel.tiles is not None for kernel in schedule.kernels)


def test_what_is_reduced_over_a_product_is_left_to_the_library() -> None:
    assert kernels_by_tiles(tiled(lambda x, w: (torch.softmax(x @ w, -1),), (8, 6), (6, 9))) == 0


def test_a_product_alone_is_left_to_the_library() -> None:
    assert kernels_by_tiles(tiled(lambda x, w: (x @ w,), (8, 6), (6, 9))) == 0


def test_an_operand_that_others_read_is_computed_apart() -> None:
    schedule = tiled(lambda x, w: ((y := torch.exp(x)) @ w, y), (8, 6), (6, 9))
    assert kernels_by_tiles(schedule) == 0 and len(schedule.kernels) == 1


def test_products_of_float32_and_of_unknown_sizes_are_left_to_the_library() -> None:
    def function(x: Tensor, w: Tensor) -> tuple[Tensor]:
        return (torch.relu(x @ w),)

    def choose(regions: Sequence[Region]) -> list[Tiles]:
        return [TILES] * len(regions)

    x, w = torch.randn(8, 6), torch.randn(6, 9)
    assert kernels_by_tiles(planned(traced(function, x, w), choose=choose)) == 0
    half = x.bfloat16(), w.bfloat16()
    assert kernels_by_tiles(planned(traced(function, *half), choose=choose)) == 1
    assert kernels_by_tiles(planned(traced(function, *half, mode="symbolic"), choose=choose)) == 0


def test_what_is_decided_by_the_last_bit_reads_the_rounded_product() -> None:
    """`x > 0.5` of what is stored as 0.5 must not be true."""
    compared = tiled(lambda x, w: ((x @ w) > 0.5,), (8, 6), (6, 9))
    added = tiled(lambda x, w: ((x @ w) + 0.5,), (8, 6), (6, 9))
    kept = tiled(lambda x, w: ((x @ w) + 0.5,), (8, 6), (6, 9), keep_rounding=True)
    texts = ["\n".join(p.text for k in s.kernels for p in emit_programs(k)) for s in (compared, added, kept)]
    assert [text.count(".to(tl.bfloat16)") for text in texts] == [1, 1, 2]


def test_an_operand_of_a_product_is_never_written_over() -> None:
    """`x += x @ w`: what an input holds after the call is written over it only where nothing else is read of it."""

    def function(x: Tensor, w: Tensor) -> tuple[Tensor]:
        return (x + x @ w,)

    arguments = [torch.randn(32, 32).bfloat16() for _ in range(2)]
    program = traced(function, *arguments)
    (returned,) = (node for node in program.module.graph.nodes if node.name.startswith("add"))
    placeholder = next(iter(program.module.graph.nodes)).name
    fused = fuse(lower(program, ON_CPU))
    after_call = {returned.name: placeholder}
    by_library = plan(fused, after_call)
    ours = plan(fused, after_call, lambda regions: [TILES] * len(regions))
    assert any(isinstance(step, Reuse) for step in by_library.steps), "the kernel alone reads each element it writes"
    assert kernels_by_tiles(ours) == 1 and not any(isinstance(step, Reuse) for step in ours.steps)


def test_what_two_products_read_is_part_of_the_later_and_is_not_written_over() -> None:
    def function(x: Tensor, w: Tensor, y: Tensor, v: Tensor) -> tuple[Tensor]:
        return (torch.relu(x @ w) + y @ v,)

    schedule = tiled(function, (32, 16), (16, 24), (32, 8), (8, 24))
    assert kernels_by_tiles(schedule) == 1, "what is added is part of the later product"

    def with_another(x: Tensor, w: Tensor, v: Tensor) -> tuple[Tensor]:
        first = torch.relu(x @ w)
        return (torch.tanh(first @ v) + first,)

    schedule = tiled(with_another, (32, 16), (16, 24), (24, 24))
    assert kernels_by_tiles(schedule) == 2 and not any(isinstance(step, Reuse) for step in schedule.steps)


def test_equal_products_share_a_kernel() -> None:
    def function(x: Tensor, w: Tensor) -> tuple[Tensor]:
        for _ in range(3):
            x = torch.relu(x @ w)
        return (x,)

    schedule = tiled(function, (8, 8), (8, 8))
    assert kernels_by_tiles(schedule) == 1
    assert sum(isinstance(step, Launch) for step in schedule.steps) == 3


def test_schedules_without_a_choice_are_as_they_were() -> None:
    case = CASES["both ends"]
    program = traced(case.function, *case.arguments(torch.bfloat16))
    left = planned(program, choose=lambda regions: [None] * len(regions))
    assert left.steps == planned(program).steps
    executable(left)(list(case.arguments(torch.bfloat16)))


def test_a_kernel_that_is_no_product_takes_no_tiles() -> None:
    x = torch.zeros(8)
    kernel = ir.make_run(ir.loops(i=8), [ir.store("y", ir.i, ir.load("x", ir.i))], {"x": x}, {"y": x}).kernel
    with pytest.raises(Unsupported, match="none of halves"):
        emit_programs(replace(kernel, tiles=TILES))


# ---- compiled for a GPU ----------------------------------------------------------------------------------------------

LARGE = Case(CASES["linear"].function, ((8, 1024, 768), (3072, 768), (3072,), (8, 1024, 3072)))


@pytest.fixture(scope="module")
def large() -> Kernel:
    arguments = [torch.empty(shape, dtype=torch.bfloat16) for shape in LARGE.shapes]
    found = list[Region]()
    planned(traced(LARGE.function, *arguments), choose=lambda regions: [found.append(r) for r in regions])  # type: ignore[arg-type,func-returns-value]
    return replace(found[0].kernel, name="product")


@pytest.mark.parametrize("tiles", PRODUCTS)
def test_products_compile_for_sm_90_without_spills(large: Kernel, tiles: Tiles, tmp_path: Path) -> None:
    kernel = replace(large, tiles=tiles)
    (found,) = for_gpu.measure(kernel, emit_programs(kernel), for_gpu.variants_of(kernel)[0], str(tmp_path))
    assert found.spill_bytes == 0 and found.warps == found.wanted_warps == tiles.warps


@pytest.mark.parametrize("is_wide", [False, True])
def test_products_run_on_tensor_cores_with_loads_under_way(large: Kernel, is_wide: bool, tmp_path: Path) -> None:
    from assay.compiler.toolchain.gpu.triton_launch import compiled, module_of

    kernel = replace(large, tiles=Tiles(128, 128, 64, 8, 3))
    (program,) = emit_programs(kernel, is_wide)
    text = compiled(kernel, program, module_of((program,), str(tmp_path)), is_wide, True).asm["ptx"]
    assert "wgmma.mma_async" in text and "cp.async" in text and "cp.async.wait_group" in text


@pytest.mark.parametrize("name", ["left transposed", "several results", "batches added", "operands rounded", "heads"])
@pytest.mark.parametrize("is_aligned", [True, False])
def test_products_of_odd_sizes_compile_for_sm_90(name: str, is_aligned: bool, tmp_path: Path) -> None:
    from assay.compiler.toolchain.gpu.triton_launch import compiled, module_of

    case = CASES[name]
    for kernel in by_tiles(case, case.arguments(torch.bfloat16)).kernels:
        (program,) = emit_programs(kernel)
        assert compiled(kernel, program, module_of((program,), str(tmp_path)), False, is_aligned).asm["ptx"]


# ---- the choice ------------------------------------------------------------------------------------------------------


class Clock:
    """Says which way of a region is the fastest, 0 for the library's, and notes how many it was asked of."""

    def __init__(self, best: int, gain: float = 0.5) -> None:
        self.best, self.gain, self.asked = best, gain, list[int]()

    def __call__(self, region: Region, calls: Sequence[Callable[..., object]]) -> Sequence[float]:
        self.asked.append(len(calls))
        return [1.0 - self.gain * (at == self.best) for at in range(len(calls))]


@pytest.fixture
def regions() -> list[Region]:
    """Of a program on a GPU that is not there."""
    found = list[Region]()
    case = CASES["linear by whole tiles"]
    planned(
        traced(case.function, *case.arguments(torch.bfloat16)),
        choose=lambda regions: [found.append(r) for r in regions],  # type: ignore[arg-type,func-returns-value]
    )
    return [replace(r, bound=replace(r.bound, kernel=replace(r.kernel, device=DEVICE))) for r in found]


@pytest.fixture
def chosen(launches: list[tuple[int, ...]], monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    from assay.compiler.toolchain.gpu import tune_products

    monkeypatch.setattr(tune_products, "machine_of", lambda device: "this one")
    journal.reset()

    def choose(regions: Sequence[Region], folder: Path, clock: Any, debug: int = 0) -> list[Tiles | None]:
        options = Options.of({"cache": str(folder), "debug": debug}, None)

        def library(kernels: Sequence[Kernel], options: Options) -> dict[str, Callable[..., None]]:
            return {kernel.name: lambda *values: None for kernel in kernels}

        return tune_products.choose(regions, options, Journal.open(options), library, clock)

    yield choose


def test_the_fastest_tiles_are_chosen_and_said(
    regions: list[Region], chosen: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    clock = Clock(2)
    candidates = tiles_of_product(64, 96)
    assert chosen(regions, tmp_path, clock, debug=1) == [candidates[1]]
    assert clock.asked == [len(candidates) + 1] and journal.totals()["products"] == {"tiles": 1}
    said = capsys.readouterr().out
    assert "addmm, add (64 x 96 x 64): tiles" in said and "the library 1000.0000 ms, tiles 500.0000 ms" in said


@pytest.mark.parametrize("clock", [Clock(0), Clock(1, gain=0.02)])
def test_the_library_stays_where_tiles_save_too_little(
    regions: list[Region], chosen: Any, tmp_path: Path, clock: Clock
) -> None:
    assert chosen(regions, tmp_path, clock) == [None]
    assert journal.totals()["products"] == {"library": 1}
    assert chosen(regions, tmp_path, Clock(1)) == [None], "as the cache knows"


def test_a_region_is_measured_once_for_a_device(
    regions: list[Region], chosen: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from assay.compiler.toolchain.gpu import tune_products

    clock = Clock(1)
    first = chosen([*regions, *regions], tmp_path, clock)
    assert len(clock.asked) == 1 and first[0] == first[1] is not None
    assert chosen(regions, tmp_path, clock) == first[:1] and len(clock.asked) == 1
    monkeypatch.setattr(tune_products, "machine_of", lambda device: "another one")
    assert chosen(regions, tmp_path, clock) == first[:1] and len(clock.asked) == 2


def test_what_there_is_no_room_to_measure_is_the_librarys_and_not_remembered(
    regions: list[Region], chosen: Any, tmp_path: Path
) -> None:
    assert chosen(regions, tmp_path, lambda region, calls: None) == [None]
    clock = Clock(1)
    assert chosen(regions, tmp_path, clock) != [None] and len(clock.asked) == 1


def test_tiles_that_do_not_compile_are_left_out(
    regions: list[Region], chosen: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state(monkeypatch, shared_memory_bytes=0)
    clock = Clock(1)
    assert chosen(regions, tmp_path, clock) == [None] and clock.asked == []


def test_products_are_chosen_where_that_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not by default, nor where results are to be eager's bits, nor on the CPU."""
    from assay.compiler import pipeline
    from assay.compiler.toolchain import load

    asked = list[int]()

    def choose(regions: Sequence[Region], options: Options, journal: Journal) -> list[Tiles | None]:
        asked.append(len(regions))
        return [None] * len(regions)

    monkeypatch.setattr(load, "choose_products", choose)
    case = CASES["linear"]
    program = traced(case.function, *case.arguments(torch.bfloat16))
    for options in ({}, {"tune": True, "numerics": "exact"}, {"tune": True, "numerics": "cast"}, {"tune": True}):
        made = Options.of(options, None)
        pipeline.build(program, made, Journal.open(made))
    assert asked == [1, 1]


@pytest.mark.parametrize(("rows", "columns"), [(1, 1), (16, 4096), (8192, 3072), (100, 7)])
def test_tiles_are_tried_that_a_product_may_want(rows: int, columns: int) -> None:
    found = tiles_of_product(rows, columns)
    assert found and set(found) <= set(PRODUCTS)
    assert all(tiles.rows < 2 * max(16, rows) and tiles.columns < 2 * max(16, columns) for tiles in found)
    assert len(set(PRODUCTS)) == len(PRODUCTS)


def test_regions_take_room_for_both_ways(regions: list[Region]) -> None:
    from assay.compiler.toolchain.gpu.tune_products import bytes_of, filled

    (region,) = regions
    made = filled(region.layouts.values(), torch.device("cpu"))
    assert {tuple(tensor.shape) for tensor in made} == {(96,), (2, 32, 64), (96, 64), (2, 32, 96)}
    assert all(tensor.unique().numel() > 1 for tensor in made)
    read = sum(tensor.numel() for tensor in made)
    assert bytes_of(region) >= 2 * (read + 2 * 64 * 96), "what is read, the product, the result"
