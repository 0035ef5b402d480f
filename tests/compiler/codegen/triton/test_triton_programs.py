"""Kernels as Triton programs, with no GPU: interpreted beside eager, and compiled for one."""

from __future__ import annotations

import math
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from assay.compiler.codegen.triton.programs import emit_programs, takes
from assay.compiler.codegen.triton.tile_sizes import SPACE, Blocks, Shape, choose, split_of
from assay.compiler.codegen.triton.tiles import Program
from assay.compiler.ir.loops.index import Int, Symbol
from assay.compiler.ir.loops.kernel import AsValue, Cast, Check, Expr, Loop, Scan
from assay.compiler.toolchain.gpu import triton_build
from assay.compiler.toolchain.gpu.triton_build import stack_bytes
from assay.compiler.toolchain.gpu.triton_launch import WIDE, Variants, compiled, module_of
from tests import kernel_ir as ir
from tests.compiler.codegen.cpp.test_cpp_kernels import BOUNDS, RUNS
from tests.compiler.codegen.triton.test_row_edges import EDGES
from tests.compiler.schedule.test_nested_reductions import RUNS as NESTED
from tests.kernel_ir import F32, call, const, i, j, k, load, loops, reduce, store
from tests.lowering import planned, traced
from tests.sources import ROOT

for_gpu = pytest.importorskip("assay.harness.backends.for_gpu", reason="needs Triton")
GENERATOR = torch.Generator().manual_seed(5)


def powers(rows: int, width: int) -> ir.Run:
    """The greatest of a row and the sum of powers relative to it, with NaN and infinities of both signs."""
    x = torch.randn(rows, width, generator=GENERATOR)
    x[0], x[1, 5], x[2, 7], x[3, :-3] = float("-inf"), float("inf"), float("nan"), float("-inf")
    value = load("x", i * width + k)
    peak = reduce("max", value, k=width)
    total = reduce("sum", call("exp", call("sub", value, peak)), k=width)
    expected = {"m": x.amax(1), "s": (x.double() - x.double().amax(1, True)).exp().sum(1).float()}
    return ir.make_run(loops(i=rows), [store("m", i, peak), store("s", i, total)], {"x": x}, expected)


def written_over_what_is_read() -> ir.Run:
    """The second store reads the element that the first one writes, which may be the same memory."""
    x = torch.randn(6, generator=GENERATOR)
    stores = [store("x", i, const(0)), store("y", i, call("neg", load("x", i)))]
    return ir.make_run(loops(i=6), stores, {"x": x}, {"x": torch.zeros(6), "y": -x})


def total_beside_nothing() -> ir.Run:
    """One store runs as often as it should where another one's loop runs not at all."""
    stores = [store("y", i, const(1)), store("z", 0, reduce("sum", const(1), k=0))]
    return ir.make_run(loops(i=0), stores, {}, {"y": torch.zeros(0), "z": torch.zeros(1)})


def total_of_a_row_beside_nothing(none: Symbol | int) -> ir.Run:
    """The row is walked, and there is nothing that the other loop's instances would be divided by."""
    x = torch.arange(70.0)
    total = reduce("sum", load("x", k), k=Symbol("n"))
    symbols = {"n": 70} | ({"m": 0} if isinstance(none, Symbol) else {})
    stores = [store("y", i, const(1)), store("z", 0, total)]
    return ir.make_run(loops(i=none), stores, {"x": x}, {"y": torch.zeros(0), "z": x.sum(0, keepdim=True)}, symbols)


def position_in_a_short_row() -> ir.Run:
    """A short reduction over a loop that bears the name of one around it."""
    x = torch.randn(40, 16, generator=GENERATOR)
    best = reduce("argmax", load("x", i * 16 + k), torch.int64, k=16)
    stores = [store("y", i * 16 + j, load("x", i * 16 + j)), store("at", i, best)]
    return ir.make_run(loops(i=40, j=16), stores, {"x": x}, {"y": x, "at": x.argmax(1)})


NO_NUMBERS = {(0, 0): math.inf, (1, 9_000): -math.inf, (2, 0): math.nan, (3, 16_999): math.nan, (4, 5): -math.inf}


def moments(
    rows: int, width: int, dtype: torch.dtype = F32, off: float = 1000.0, at: dict[tuple[int, int], float] | None = None
) -> ir.Run:
    """The mean and the variance of rows that are far from zero, but for some numbers at places of their own."""
    x = (torch.randn(rows, width, generator=GENERATOR, dtype=torch.float64) + off).to(dtype)
    for place, number in (at or {}).items():
        x[place] = number
    value = load("x", i * width + k, dtype)
    mean = call("div", reduce("sum", value, dtype, k=width), const(float(width), dtype), dtype=dtype)
    gap = call("sub", value, mean, dtype=dtype)
    total = reduce("sum", call("mul", gap, gap, dtype=dtype), dtype, k=width)
    variance = call("div", total, const(float(width), dtype), dtype=dtype)
    exact = x.double()
    expected = {"m": exact.mean(1).to(dtype), "v": exact.var(1, correction=0).to(dtype)}
    return ir.make_run(loops(i=rows), [store("m", i, mean), store("v", i, variance)], {"x": x}, expected)


def rows_and_their_sums(rows: int, width: int, has_other: bool) -> ir.Run:
    """Rows that are written elsewhere as they are, beside what is reduced of them.

    If it `has_other`, a buffer of as many elements is combined with that. The rows may be written in its memory.
    """
    x, z = (torch.randn(rows, width, generator=GENERATOR) for _ in range(2))
    total = reduce("sum", load("x", i * width + k), k=width)
    place = i * width + j
    stores = [store("y", place, call("neg", load("x", place))), store("s", i, total)]
    expected = {"y": -x, "s": x.double().sum(1).float()}
    if has_other:
        stores.append(store("w", place, call("mul", load("z", place), total)))
        expected["w"] = (z.double() * x.double().sum(1, keepdim=True)).float()
    given = {"x": x, "z": z} if has_other else {"x": x}
    return ir.make_run(loops(i=rows, j=width), stores, given, expected)


def steps_of_several(count: int, numel: int) -> ir.Run:
    """What an optimizer does to some tensors of one size, each with a counter; no tensor is of two steps."""
    stores, tensors, expected = [], dict[str, torch.Tensor](), dict[str, torch.Tensor]()
    for number in range(count):
        p, g, t = f"p{number}", f"g{number}", f"t{number}"
        tensors |= {n: torch.randn(numel, generator=GENERATOR) for n in (p, g)} | {t: torch.full((), float(number))}
        step = call("mul", load(g, i), call("add", load(t, 0), const(1.0)))
        stores += [
            store(f"{p}_", i, call("sub", load(p, i), step)),
            store(f"{t}_", 0, call("add", load(t, 0), const(1))),
        ]
        expected |= {f"{p}_": tensors[p] - tensors[g] * (number + 1), f"{t}_": torch.full((), number + 1.0)}
    return ir.make_run(loops(i=numel), stores, tensors, expected)


def lowered(function: Callable[[torch.Tensor], tuple[torch.Tensor, ...]], x: torch.Tensor) -> ir.Run:
    """The one kernel of a function, whose results it stores in their order."""
    (kernel,) = planned(traced(function, x)).kernels
    outputs = dict(zip((b.name for b in kernel.buffers if b.name.startswith("out")), function(x), strict=True))
    tensors = {b.name: torch.full_like(outputs[b.name], 77) if b.name in outputs else x for b in kernel.buffers}
    return ir.Run(kernel, tensors, outputs)


def unordered(rows: int, length: int) -> torch.Tensor:
    """Rows without equals, so that positions are known, in which infinities and NaN come last and first."""
    ranks = torch.rand(rows, length, generator=GENERATOR).argsort(-1).float() - length // 2
    ranks[::3, length // 2], ranks[1::3, 0] = float("nan"), float("-inf")
    return ranks


SORTED = {
    "sorted rows of 5": lowered(lambda x: tuple(x.sort(stable=True)), unordered(70, 5)),
    "sorted rows of 32": lowered(lambda x: tuple(x.sort(-1, True)), unordered(1024, 32)),
    "sorted columns": lowered(lambda x: tuple(x.sort(0)), unordered(12, 33)),
    "greatest 2 of 8": lowered(lambda x: tuple(x.topk(2)), unordered(300, 8)),
    "least 3 of 60": lowered(lambda x: tuple(x.topk(3, largest=False)), unordered(20, 60)),
    "greatest 8 of 300": lowered(lambda x: tuple(x.topk(8)), unordered(5, 300)),
}


def sum_of_nothing() -> ir.Run:
    """What is summed is at the same place in each of no iterations, and there is no memory there."""
    stores = [
        store("y", i, reduce("sum", load("x", i), k=0)),
        store("z", i, reduce("any", load("b", i, torch.bool), k=0)),
    ]
    inputs = {"x": torch.zeros(0), "b": torch.zeros(0, dtype=torch.bool)}
    return ir.make_run(loops(i=4), stores, inputs, {"y": torch.zeros(4), "z": torch.zeros(4, dtype=torch.bool)})


def norms_of_symbolic_rows() -> ir.Run:
    """Several sums over rows of a length that is not known: the tiles of all of them are in registers at once."""
    x, y, z = (torch.randn(4, 70, generator=GENERATOR) for _ in range(3))
    width = Symbol("n")
    values = {name: load(name, i * width + k) for name in "xyz"}
    pairs = {"xy": x - y, "xz": x - z, "yz": y - z}
    apart = {pair: call("sub", values[pair[0]], values[pair[1]]) for pair in pairs}
    stores = [store(pair, i, reduce("sum", call("mul", each, each), k=width)) for pair, each in apart.items()]
    expected = {pair: each.double().square().sum(1).float() for pair, each in pairs.items()}
    return ir.make_run(loops(i=4), stores, {"x": x, "y": y, "z": z}, expected, {"n": 70})


def negative_zero(dtype: torch.dtype) -> ir.Run:
    """What a division by a zero that is written down tells of its sign."""
    x = torch.ones(40, dtype=dtype)
    quotient = call("div", load("x", i, dtype), const(-0.0, dtype))
    return ir.make_run(loops(i=40), [store("y", i, quotient)], {"x": x}, {"y": x / -0.0})


def negated_zeros(dtype: torch.dtype) -> ir.Run:
    x = torch.zeros(40, dtype=dtype)
    x[::3] = -0.0
    quotient = call("div", const(1.0, dtype), call("neg", load("x", i, dtype)))
    return ir.make_run(loops(i=40), [store("y", i, quotient)], {"x": x}, {"y": 1 / -x})


def totals_of_negative_zeros() -> ir.Run:
    """A total begins at 0, and so is 0 where all before it are -0."""
    x = torch.full((5, 8), -0.0)
    x[:, 5] = 2.0
    total = Scan("sum", Loop("j", Int(8)), Symbol("j"), load("x", i * 8 + j), F32)
    quotient = call("div", const(1.0), total)
    expected = torch.tensor([torch.inf] * 5 + [0.5] * 3).expand(5, 8).contiguous()
    return ir.make_run(loops(i=5, j=8), [store("y", i * 8 + j, quotient)], {"x": x}, {"y": expected})


def integers_as(dtype: torch.dtype) -> ir.Run:
    """By way of float32, as in eager: 2^24 + 1 of these are rounded twice."""
    x = torch.tensor([0, 1, -3, 257, 2**24 + 1, 2**31 + 2**23 + 1, -(2**40) - 2**32 - 1])
    value = Cast(load("x", i, torch.int64), dtype)
    return ir.make_run(loops(i=7), [store("y", i, value)], {"x": x}, {"y": x.to(dtype)})


def numbers_before_nan() -> ir.Run:
    x = torch.tensor([1.0, float("nan"), float("nan"), -2.0])
    stores = [store(op, i, call(op, load("x", i), load("y", i))) for op in ("fmax", "fmin")]
    y = x.roll(1)
    return ir.make_run(loops(i=4), stores, {"x": x, "y": y}, {"fmax": x.fmax(y), "fmin": x.fmin(y)})


def steps_that_are_kept(count: int, rows: int, width: int, is_across: bool = False) -> ir.Run:
    """A recurrence of which each step is stored, and waits for all steps, so that there are as many values at once.

    If it runs `is_across`, columns are read and rows are written.
    """
    x = torch.randn(rows, width, generator=GENERATOR)
    value = load("x", j * rows + i if is_across else i * width + j)
    stores, expected, exact = [], dict[str, torch.Tensor](), x.double()
    for step in range(count):
        value = call("add", call("mul", value, const(0.5)), const(float(step)))
        exact = exact / 2 + step
        stores.append(store(f"y{step}", i * width + j, value))
        expected[f"y{step}"] = exact.float()
    given = x.t().contiguous() if is_across else x
    return ir.make_run(loops(i=rows, j=width), stores, {"x": given}, expected)


OWN = {
    "40 steps that are kept": steps_that_are_kept(40, 5, 700),
    "90 steps that are kept": steps_that_are_kept(90, 3, 200),
    "200 steps that are kept": steps_that_are_kept(200, 3, 300),
    "40 steps that are kept across": steps_that_are_kept(40, 70, 50, True),
    "90 steps that are kept across": steps_that_are_kept(90, 70, 50, True),
    "integers as bfloat16": integers_as(torch.bfloat16),
    "integers as float16": integers_as(torch.float16),
    "numbers before NaN": numbers_before_nan(),
    "negated zeros": negated_zeros(F32),
    "negated zeros, float64": negated_zeros(torch.float64),
    "totals of negative zeros": totals_of_negative_zeros(),
    "negative zero": negative_zero(F32),
    "negative zero, float64": negative_zero(torch.float64),
    "steps of 5 tensors": steps_of_several(5, 3000),
    "steps of 2 tensors of nothing": steps_of_several(2, 0),
    "steps of 32 tensors": steps_of_several(32, 768),
    "powers in steps": powers(300, 17_000),
    "powers in parts": powers(6, 20_001),
    "moments in long rows": moments(300, 17_000),
    "moments in long rows off 16 bytes": moments(30, 16_999),
    "moments of what is no number": moments(300, 17_000, at=NO_NUMBERS),
    "moments in rows that fit": moments(30, 777),
    "moments of parts": moments(3, 50_001),
    "moments of parts that are alike": moments(2, 1 << 16),
    "moments of parts, float64": moments(2, 40_000, torch.float64, 2.0),
    "moments of one kind": moments(2, 40_000, off=0.0),
    "rows and their sums": rows_and_their_sums(301, 16_999, False),
    "rows, their sums, and what waits for these": rows_and_their_sums(300, 16_999, True),
    "written over what is read": written_over_what_is_read(),
    "total beside nothing": total_beside_nothing(),
    "total of a row beside nothing": total_of_a_row_beside_nothing(0),
    "total of a row beside a symbol of nothing": total_of_a_row_beside_nothing(Symbol("m")),
    "norms of symbolic rows": norms_of_symbolic_rows(),
    "sum of nothing": sum_of_nothing(),
    "position in a short row": position_in_a_short_row(),
    **EDGES,
    **NESTED,
    **SORTED,
}
SLOW = ("long", "large", "in steps")
INTERPRETED = {name: run for name, run in {**RUNS, **OWN}.items() if not any(word in name for word in SLOW)}
BY_ROW = (
    "softmax",
    "layer norm, bfloat16",
    "symbolic columns",
    "any over (0, 1, 2)",
    "padded",
    "softmax over columns",
    "halves in rows of 197",
)
CHANGED = ("softmax", "layer norm, bfloat16", "transposed")
COMPILED = (
    *("softmax", "softmax, large", "softmax over columns", "layer norm, bfloat16", "gelu, float16", "padded"),
    *("transposed, large", "symbolic broadcast", "symbolic columns", "whole then each", "long argmax over (0, 2)"),
    *("mask of dropout, 8 at a time", "mask of dropout, 1 at a time", "dropped halves"),
    *("40 steps that are kept", "90 steps that are kept", "200 steps that are kept", "90 steps that are kept across"),
    *("steps of 5 tensors", "steps of 32 tensors", "negative zero", "negative zero, float64"),
    *("negated zeros", "negated zeros, float64"),
    *("long sum over (0,)", "any over (0, 1, 2)", "mixed dtypes", "powers in steps", "position in a short row"),
    *("sorted rows of 32", "greatest 2 of 8", "greatest 8 of 300"),
    *("norms of symbolic rows", "rows and their sums", "moments of parts"),
    *("moments in rows that fit", "moments of parts that are alike", "moments of parts, float64"),
)


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, torch.Tensor]]:
    folder = tmp_path_factory.mktemp("interpreted")
    root = ROOT
    command = [sys.executable, "-m", "tests.interpret_worker", str(folder / "cache"), str(folder / "results")]
    environment = os.environ | {"TRITON_INTERPRET": "1", "PYTHONPATH": str(root)}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=root)
    assert done.returncode == 0, done.stderr[-3000:]
    return torch.load(folder / "results")


AS_WELL = {f"{name}, by row": name for name in BY_ROW}
AS_WELL |= {f"{name}, {change}": name for name in CHANGED for change in SPACE}


@pytest.mark.parametrize("name", [*INTERPRETED, *AS_WELL])
def test_emit_programs_equal_eager(name: str, results: dict[str, dict[str, torch.Tensor]]) -> None:
    run = INTERPRETED[AS_WELL.get(name, name)]
    for buffer, expected in run.expected.items():
        got = results[name][buffer]
        assert got.dtype == expected.dtype and got.shape == expected.shape
        bound = BOUNDS.get(got.dtype, 0.0)
        if "prod" in name:
            bound *= 4  # a tree of products errs more than what BOUNDS is for
        largest = expected.double().abs().nan_to_num(0, 0, 0).max().item() if expected.numel() else 0.0
        torch.testing.assert_close(
            got, expected, rtol=0, atol=bound * largest, equal_nan=True, msg=lambda m: f"{m}\n{text_of(run)}"
        )


def test_interpreted_buffers_may_lie_in_one_memory(results: dict[str, dict[str, torch.Tensor]]) -> None:
    assert results["over one memory"]["y"].tolist() == [2.0 * value for value in range(2, 8)]


@pytest.mark.parametrize("is_wide", [False, True])
@pytest.mark.parametrize("name", COMPILED)
def test_emit_programs_compile_for_a_gpu(name: str, is_wide: bool, tmp_path: Path) -> None:
    run = {**RUNS, **OWN}[name]
    programs = emit_programs(run.kernel, is_wide)
    module = module_of(programs, str(tmp_path))
    for program in programs:
        code = compiled(run.kernel, program, module, is_wide, True)
        assert ".target sm_90" in code.asm["ptx"]
        taken = for_gpu.resources_of(code, program.warps)
        assert taken.shared_bytes < 200_000
        assert taken.stack_bytes == stack_bytes(code.kernel) == 0, f"{taken}\n{program.text}"


def test_a_program_that_spills_gets_more_warps(tmp_path: Path) -> None:
    """A comparison of each element of a row with each, written out, is more than one warp has registers for."""
    run = OWN["sorted rows of 32"]
    (program,) = emit_programs(run.kernel)
    code = compiled(run.kernel, program, module_of((program,), str(tmp_path)), False, True)
    assert program.warps == 1 and code.metadata.num_warps > 1


def test_the_stack_of_machine_code_is_what_the_disassembler_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(triton_build, "MOST_WARPS", 1)
    run = OWN["sorted rows of 32"]
    (program,) = emit_programs(run.kernel)
    code = compiled(run.kernel, program, module_of((program,), str(tmp_path)), False, True)
    assert for_gpu.resources_of(code, 1).stack_bytes == triton_build.stack_bytes(code.kernel) > 100


@pytest.mark.parametrize(
    ("sizes", "chosen", "asked"),
    [((600, 600, 0, 0, 0), 4, [2, 4]), ((600, 700, 650, 600, 600), 1, [2, 4, 8, 16]), ((8, 0, 0, 0, 0), 1, [])],
)
def test_of_programs_that_spill_the_one_that_spills_least_is_taken(
    sizes: tuple[int, ...], chosen: int, asked: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    tried, stacks = list[int](), dict(zip((1, 2, 4, 8, 16), sizes, strict=True))

    def with_warps(warps: int) -> SimpleNamespace:
        tried.append(warps)
        return SimpleNamespace(kernel=warps)

    monkeypatch.setattr(triton_build, "stack_bytes", stacks.__getitem__)
    found = triton_build._with_fewest_spills(with_warps, 1, SimpleNamespace(kernel=1))
    assert found.kernel == chosen and tried == asked


def test_integers_wrap_beside_checks(tmp_path: Path) -> None:
    """Triton guards sums of integers against overflow in programs that check something, where eager wraps."""
    value = call("add", load("x", i, torch.int32), const(2**31 - 1, torch.int32))
    checked = Check(value, call("lt", value, const(7, torch.int32)), "index", torch.int32)
    x = torch.arange(64, dtype=torch.int32)
    run = ir.make_run(loops(i=64), [store("y", i, checked)], {"x": x}, {"y": x})
    (program,) = emit_programs(run.kernel)
    assert program.checks
    code = compiled(run.kernel, program, module_of((program,), str(tmp_path)), False, True)
    assert "overflow" not in code.asm["ttir"]


@pytest.mark.parametrize("op", ["log", "rsqrt", "sin", "expm1", "fmod", "exp"])
def test_functions_of_the_library_take_what_is_below_the_least_normal_number(op: str, tmp_path: Path) -> None:
    """It has them in two forms: of the other one the logarithm of 1e-40 is -inf."""
    x = torch.ones(64)
    arguments = [load("x", i)] * (2 if op == "fmod" else 1)
    run = ir.make_run(loops(i=64), [store("y", i, call(op, *arguments))], {"x": x}, {"y": x})
    (program,) = emit_programs(run.kernel)
    code = compiled(run.kernel, program, module_of((program,), str(tmp_path)), False, True)
    flushing = re.findall(r"\w+(?:\.\w+)*\.ftz\.f32", code.asm["ptx"])
    assert set(flushing) <= {"ex2.approx.ftz.f32", "rcp.approx.ftz.f32"}, flushing  # of numbers that cannot be so small


def text_of(run: ir.Run) -> str:
    return "\n".join(program.text for program in emit_programs(run.kernel))


def test_emit_reads_rows_that_fit_once() -> None:
    assert text_of(RUNS["softmax"]).count("tl.load") == 1


def test_emit_walks_long_rows_once_for_a_sum_of_powers() -> None:
    text = text_of(OWN["powers in steps"])
    assert text.count("for y0 in") == 1 and "joined_powers" in text


def test_emit_walks_long_rows_once_for_their_mean_and_variance() -> None:
    text = text_of(OWN["moments in long rows"])
    assert text.count("for y0 in") == 1 and text.count("joined_squares") == 1
    first, *rest = emit_programs(OWN["moments of parts"].kernel)
    assert first.text.count("for y0 in") == 1 and "joined_squares" in first.text
    assert not any("tl.load(x_" in program.text for program in rest)


def test_emit_writes_rows_elsewhere_while_they_are_reduced() -> None:
    text = text_of(OWN["rows and their sums"])
    assert text.count("for y0 in") == 1 and text.count("tl.load(x_") == 1 and text.count("tl.store(y_") >= 1


def test_emit_does_not_write_what_is_still_to_be_read() -> None:
    first, last = text_of(OWN["rows, their sums, and what waits for these"]).split("for y0 in")[1:]
    assert "tl.load(z_" not in first and "tl.store(y_" not in first
    assert "tl.load(z_" in last and "tl.store(y_" in last


def test_emit_splits_long_reductions_of_few_rows() -> None:
    run = RUNS["long sum over (0, 1, 2)"]
    first, last = emit_programs(run.kernel)
    assert isinstance(first.grid, Int) and first.grid.value > 100 and last.grid == Int(1)
    assert [buffer.name for buffer in last.workspace] == ["parts_2"]


@pytest.mark.parametrize(("name", "elements"), [("40", 512), ("90", 256), ("200", 128)])
def test_tile_has_fewer_elements_a_thread_where_each_has_many_values(name: str, elements: int) -> None:
    (program,) = emit_programs(OWN[f"{name} steps that are kept"].kernel)
    assert program.warps == 4 and f"tl.arange(0, {elements})" in program.text


@pytest.mark.parametrize(("rows", "length"), [(256, 262), (64, 1000), (2048, 100), (8, 1024), (256, 1024), (4096, 3)])
def test_tile_reduces_few_short_columns_in_one_launch(rows: int, length: int) -> None:
    blocks = choose(Shape(Int(rows), Int(1), (Int(length),), False, False, True, False))
    assert split_of(rows, length, blocks) == (1, length)
    assert -(-rows // blocks.x) >= 64 or blocks.x == 8
    assert blocks.x * min(blocks.step, length) <= 8192


@pytest.mark.parametrize(("rows", "length"), [(1, 10), (0, 1 << 20), (8192, 8192), (264, 1 << 20)])
def test_tile_leaves_reductions_whole_that_keep_a_device_busy(rows: int, length: int) -> None:
    (program,) = emit_programs(row_sum(rows, length).kernel)
    assert not program.workspace


def row_sum(rows: int, length: int) -> ir.Run:
    x, y = torch.zeros(1), torch.zeros(1)
    stores = [store("y", i, reduce("sum", load("x", i * length + k), k=length))]
    return ir.make_run(loops(i=rows), stores, {"x": x}, {"y": y})


@pytest.mark.parametrize("length", [8192, 8193, 100_000, 1 << 26])
@pytest.mark.parametrize("rows", [1, 3, 100])
def test_tile_splits_cover_a_length_once(rows: int, length: int) -> None:
    blocks = Blocks(1, 8, 0, 4096)
    count, part = split_of(rows, length, blocks)
    assert (count - 1) * part < length <= count * part
    assert count == 1 or part % blocks.step == 0


def test_emit_gives_each_set_of_buffers_its_instances() -> None:
    each, counters = emit_programs(OWN["steps of 5 tensors"].kernel)
    assert each.grid == Int(5 * 3) and counters.grid == Int(5)
    assert each.text.count("tl.load") == 3 and each.text.count("if which") == 4


def test_emit_reads_the_buffers_of_each_set_16_bytes_at_a_time(tmp_path: Path) -> None:
    run = OWN["steps of 32 tensors"]
    program = emit_programs(run.kernel)[0]
    code = compiled(run.kernel, program, module_of((program,), str(tmp_path)), False, True)
    assert "ld.global.v4" in code.asm["ptx"] and "st.global.v4" in code.asm["ptx"]


def test_emit_stores_apart_what_runs_in_fewer_loops() -> None:
    programs: tuple[Program, ...] = emit_programs(OWN["total beside nothing"].kernel)
    assert sorted(program.grid.value for program in programs if isinstance(program.grid, Int)) == [0, 1]


def found(op: str, dtype: torch.dtype = F32) -> list[Expr]:
    return [call(op, load("x", i, dtype))]


def test_takes_what_triton_has_text_for() -> None:
    assert takes(None, F32, found("exp")) and not takes(None, F32, found("digamma"))
    assert takes("write", F32, []) and takes("accumulate", F32, [])
    assert not takes("multiply", F32, []) and not takes("accumulate", torch.int8, [])


@pytest.mark.parametrize(
    ("capability", "dtype", "is_taken"),
    [((9, 0), torch.bfloat16, True), ((7, 5), F32, True), ((7, 5), torch.bfloat16, False), ((6, 1), F32, False)],
)
def test_takes_what_the_oldest_device_runs(
    capability: tuple[int, int], dtype: torch.dtype, is_taken: bool,
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    monkeypatch.setattr("assay.compiler.codegen.triton.programs.least_capability", lambda: capability)
    monkeypatch.setattr("assay.compiler.journal._said", set())
    assert takes(None, F32, found("exp", dtype)) == takes(None, dtype, []) == is_taken
    assert (f"capability {capability}" in caplog.text) == (not is_taken)


def test_takes_no_sums_in_any_order_where_results_must_not_vary() -> None:
    torch.use_deterministic_algorithms(True)
    try:
        assert not takes("accumulate", F32, []) and takes("accumulate", torch.int64, [])
    finally:
        torch.use_deterministic_algorithms(False)


@pytest.mark.parametrize("name", ["softmax", "layer norm, bfloat16"])
def test_emit_by_row_has_scalars_for_what_a_row_has_one_of(name: str, tmp_path: Path) -> None:
    """Triton 3.6 fails on some tensors of one element that are stored and read on; it fails on no scalar."""
    run = RUNS[name]
    programs = emit_programs(run.kernel, is_by_row=True)
    module = module_of(programs, str(tmp_path))
    for program in programs:
        assert "[1, 1]" not in program.text and "axis=None" in program.text
        assert ".target sm_90" in compiled(run.kernel, program, module, False, True).asm["ptx"]


def test_numbers_beyond_32_bits_reach_a_kernel_whole(tmp_path: Path) -> None:
    """A number that a kernel is called with is no size: no buffer is as large, and its square may be larger still."""
    given, x = Symbol("n0"), torch.arange(8, dtype=torch.int64)
    squared = call("add", load("x", i, torch.int64), AsValue(given * given, torch.int64))
    run = ir.make_run(loops(i=8), [store("y", i, squared)], {"x": x}, {"y": x}, {"n0": 3})
    (program,) = emit_programs(run.kernel)
    assert program.text.count("tl.full((), n0, tl.int64)") == 2
    start = Variants.start_text(SimpleNamespace(kernel=run.kernel))  # type: ignore[arg-type]
    assert f"n0 >= {WIDE}" in start and "otherwise" in start
    code = compiled(run.kernel, program, module_of((program,), str(tmp_path)), False, True)
    assert "i64" in code.asm["ttir"]
