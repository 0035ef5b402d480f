"""Tiles chosen by measuring: what is chosen, what is remembered, what is left as it is. A stand-in has the times."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from assay.compiler import journal
from assay.compiler.codegen.triton.tile_sizes import SPACE, USUAL, Blocks, Change
from assay.compiler.ir.loops.kernel import CPU, Check, Kernel
from assay.compiler.options import Options
from assay.compiler.toolchain.gpu import tune
from assay.compiler.toolchain.gpu.tune import fastest, filled, is_measurable
from tests import kernel_ir as ir
from tests.compiler.codegen.cpp.test_cpp_kernels import RUNS
from tests.compiler.toolchain.gpu.test_compiled_kernels import launches as launches  # the stand-in for a GPU
from tests.compiler.toolchain.gpu.test_compiled_kernels import options_of
from tests.kernel_ir import call, const, i, j, load, loops, reduce, store

pytest.importorskip("triton")
DEVICE = torch.device("cuda", 0)


def kernel() -> Kernel:
    x = torch.zeros(300, 900)
    total = store("y", i, reduce("sum", load("x", i * 900 + j), j=900))
    return replace(ir.make_run(loops(i=300), [total], {"x": x}, {"y": x[:, 0]}).kernel, name="total", device=DEVICE)


class Clock:
    """Says that one of the candidates is the fastest, and counts how often it was asked."""

    def __init__(self, best: int) -> None:
        self.best, self.asked = best, list[int]()

    def __call__(self, kernel: Kernel, launches: Sequence[Callable[..., None]]) -> Sequence[float]:
        self.asked.append(len(launches))
        return [1.0 if at == self.best else 2.0 for at in range(len(launches))]


def variants(folder: Path) -> object:
    from assay.compiler.toolchain.gpu.triton_launch import Variants

    return Variants(kernel(), str(folder))


@pytest.mark.usefixtures("launches")
def test_the_fastest_candidate_is_what_the_kernel_is(tmp_path: Path) -> None:
    from assay.compiler.toolchain.gpu.triton_launch import tune_all

    journal.reset()
    made, clock = variants(tmp_path), Clock(2)
    tune_all([made], clock)  # type: ignore[list-item]
    assert clock.asked[0] > 4 and journal.totals()["tuned"] == 1
    assert made.usual.change == made.candidates()[2].change != USUAL  # type: ignore[attr-defined]
    assert list(made.variants) == [made.usual]  # type: ignore[attr-defined]


@pytest.mark.usefixtures("launches")
def test_what_was_measured_is_measured_no_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from assay.compiler.toolchain.gpu import triton_launch

    first, second, clock = variants(tmp_path), variants(tmp_path), Clock(1)
    triton_launch.tune_all([first], clock)  # type: ignore[list-item]
    triton_launch.tune_all([second], clock)  # type: ignore[list-item]
    assert len(clock.asked) == 1 and second.usual == first.usual  # type: ignore[attr-defined]
    monkeypatch.setattr(triton_launch, "machine_of", lambda device: "another")
    triton_launch.tune_all([variants(tmp_path)], clock)  # type: ignore[list-item]
    assert len(clock.asked) == 2


@pytest.mark.usefixtures("launches")
def test_kernels_are_tuned_where_that_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from assay.compiler.toolchain.gpu import triton_launch

    seen = list[str]()
    monkeypatch.setattr(triton_launch, "tune_all", lambda kernels: seen.extend(each.kernel.name for each in kernels))
    options = options_of(str(tmp_path))
    triton_launch.load_triton([kernel()], options)
    assert seen == []
    triton_launch.load_triton([kernel()], replace(options, tune=True))
    assert seen == ["total"]
    assert Options.of(None, "max-autotune").tune and not Options.of(None, "reduce-overhead").tune


@pytest.mark.usefixtures("launches")
def test_what_there_is_no_room_to_measure_is_not_remembered(tmp_path: Path) -> None:
    from assay.compiler.toolchain.gpu.triton_launch import tune_all

    journal.reset()
    made, clock = variants(tmp_path), Clock(1)
    tune_all([made], lambda kernel, launches: None)  # type: ignore[list-item]
    assert made.usual.change == USUAL and journal.totals()["tuned"] == 0  # type: ignore[attr-defined]
    tune_all([variants(tmp_path)], clock)  # type: ignore[list-item]
    assert len(clock.asked) == 1


def test_a_little_faster_is_not_worth_another_choice() -> None:
    candidates = SPACE[:3]
    assert fastest(candidates, [1.0, 0.99, 2.0]) == USUAL
    assert fastest(candidates, [1.0, 0.9, 0.8]) == candidates[2]


def test_what_depends_on_its_numbers_is_not_measured() -> None:
    value = load("x", i)
    checked = Check(value, call("lt", value, const(7)), "index", torch.float32)
    x = torch.zeros(8)
    assert not is_measurable(ir.make_run(loops(i=8), [store("y", i, checked)], {"x": x}, {"y": x}).kernel)
    assert not is_measurable(RUNS["symbolic columns"].kernel) and is_measurable(RUNS["softmax"].kernel)


def test_buffers_are_full_of_numbers_and_the_programs_draws_stay() -> None:
    before = torch.get_rng_state()
    x, y = torch.zeros(50, dtype=torch.bfloat16), torch.zeros(40, dtype=torch.int8)
    made = filled([ir.buffer("x", x), ir.buffer("y", y), ir.buffer("z", torch.zeros(9, dtype=torch.bool))], CPU)
    assert made is not None and torch.equal(before, torch.get_rng_state())
    assert [(each.dtype, each.numel()) for each in made] == [(x.dtype, 50), (y.dtype, 40), (torch.bool, 9)]
    assert all(each.unique().numel() > 1 for each in made)


@pytest.mark.parametrize("change", SPACE)
@pytest.mark.parametrize("blocks", [Blocks(1, 1, 0, 64), Blocks(64, 8, 64, 64), Blocks(1, 16, 0, 4096)])
def test_changed_tiles_are_powers_of_two_within_bounds(blocks: Blocks, change: Change) -> None:
    changed = change.of(blocks)
    assert all(number & (number - 1) == 0 < number for number in (changed.x, changed.warps, changed.step))
    assert changed.warps <= 16 and changed.whole == blocks.whole and (change != USUAL or changed == blocks)


def test_every_choice_is_another() -> None:
    assert len(set(SPACE)) == len(SPACE) and SPACE[0] == USUAL == Change()
    assert tune.SPACE is SPACE
