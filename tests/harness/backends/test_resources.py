"""What kernels take of a GPU that is not there: measured, kept by content, recorded by any process, summed up."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner

from assay.compiler.errors import BuildError
from assay.compiler.ir.loops.index import Int
from assay.compiler.ir.loops.kernel import Buffer
from assay.compiler.options import Options
from assay.harness.backends import resources
from assay.harness.backends.resources import COMPILED, FAILED, NO_TEXT, UNALIGNED, USUAL, WIDE_INDEX, Record, Resources
from assay.harness.cli.commands import commands
from tests import kernel_ir as ir
from tests.kernel_ir import call, i, load, loops, n, store

for_gpu = pytest.importorskip("assay.harness.backends.for_gpu", reason="needs Triton")

X = torch.linspace(0.1, 2, 40)
CASES = """
import torch
from assay.harness.case import case
@case(modes=("infer",))
def powers():
    return (lambda x, y: (x.exp(), torch.digamma(y))), (torch.ones(3), torch.ones(5, 7)), {}
"""
SMALL = Resources(40, 1024, 0, 0, 4, 4)


def kernel_of(op: str) -> Any:
    return ir.make_run(loops(i=40), [store("y", i, call(op, load("x", i)))], {"x": X}, {"y": X}).kernel


@pytest.fixture
def options(tmp_path: Path) -> Options:
    return ir.options(tmp_path / "cache")


@pytest.fixture
def file(tmp_path: Path) -> Any:
    with resources.recording(tmp_path / "kernels.jsonl") as path:
        yield path


def test_resources_of_a_kernel_are_measured(options: Options) -> None:
    end = for_gpu.end_of(kernel_of("exp"), options)
    (program,) = end.programs
    assert end.how == COMPILED and 0 < program.registers <= 255 and program.warps == program.wanted_warps
    assert program.stack_bytes == program.spill_bytes == 0


def test_resources_of_a_kernel_without_text_say_why(options: Options) -> None:
    end = for_gpu.end_of(kernel_of("digamma"), options)
    assert end.how == NO_TEXT and "digamma" in end.reason and not end.programs


def test_resources_are_kept_by_content(options: Options, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = kernel_of("exp2")
    first = for_gpu.end_of(kernel, options)
    for_gpu._compiled.cache_clear()  # as in another process
    monkeypatch.setattr(for_gpu, "measure", lambda *args: pytest.fail("it is compiled again"))
    assert for_gpu.end_of(replace(kernel, name="other", origins=("exp2_1",)), options) == first


def test_a_kernel_that_triton_fails_on_is_recorded_and_an_error(
    options: Options, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*args: Any) -> None:
        raise BuildError("no layout")

    monkeypatch.setattr(for_gpu, "measure", fail)
    with resources.of_case("a case"), pytest.raises(BuildError, match=r"for sm_90.*no layout"):
        for_gpu.compile_all([kernel_of("log2"), kernel_of("digamma")], options)
    ends = [(record.case, record.end) for record in resources.read(file)]
    assert ends == [("a case", FAILED), ("a case", NO_TEXT)]


def measured(kernel: Any, variant: Any, options: Options) -> str:
    """The code of a kernel's one program before it is assembled."""
    (program,) = for_gpu._programs(kernel, variant)
    module = for_gpu.module_of([program], options.cache)
    return str(for_gpu.compiled(kernel, program, module, variant.is_wide, variant.is_aligned).asm["ptx"])


def symbolic() -> Any:
    buffers = [Buffer(name, torch.float32, n) for name in "xy"]
    return ir.kernel(loops(i=n), [store("y", i, call("exp", load("x", i)))], buffers, ["n"])


def test_variants_of_a_kernel_are_those_that_its_calls_may_need() -> None:
    assert [variant.name for variant in for_gpu.variants_of(kernel_of("exp"))] == [USUAL, UNALIGNED]
    assert [variant.name for variant in for_gpu.variants_of(symbolic())] == [USUAL, WIDE_INDEX, UNALIGNED]
    many = tuple(replace(buffer, numel=Int(for_gpu.WIDE)) for buffer in symbolic().buffers)
    (usual, other) = for_gpu.variants_of(replace(symbolic(), buffers=many))
    assert usual.is_wide and other.is_wide and other.name == UNALIGNED


def test_variants_of_a_kernel_count_on_what_they_say(options: Options) -> None:
    usual, wide, unaligned = (measured(symbolic(), each, options) for each in for_gpu.variants_of(symbolic()))
    assert [".v4." in text for text in (usual, wide, unaligned)] == [True, True, False]
    sizes = [re.findall(r"\.param \.[ub](\d+) \w+_param_2\b", text) for text in (usual, wide, unaligned)]
    assert sizes == [["32"], ["64"], ["32"]]


def test_variants_of_a_kernel_are_recorded(options: Options, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(for_gpu, "load_cpp", lambda kernels, options: {})
    for_gpu.compile_all([symbolic()], options)
    found = resources.read(file)
    assert [(record.variant, record.end) for record in found] == [
        (USUAL, COMPILED), (WIDE_INDEX, COMPILED), (UNALIGNED, COMPILED),
    ]  # fmt: skip
    assert len({record.digest for record in found}) == 3
    text = "\n".join(resources.summary(found))
    assert (
        "1 kernels, 1 distinct: 1 compiled" in text and "for 64-bit indices: 1 compiled as 1 programs, 0 failed" in text
    )


def test_variants_of_a_part_of_the_kernels_are_compiled(
    options: Options, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(for_gpu, "load_cpp", lambda kernels, options: {})
    monkeypatch.setattr(for_gpu, "_every", 1 << 32)
    for_gpu.compile_all([symbolic()], options)
    assert [record.variant for record in resources.read(file)] == [USUAL]


def test_a_variant_that_triton_fails_on_is_an_error(options: Options, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = for_gpu.measure

    def fail(kernel: Any, programs: Any, variant: Any, cache: str) -> Any:
        if variant.name == UNALIGNED:
            raise BuildError("no layout")
        return whole(kernel, programs, variant, cache)

    monkeypatch.setattr(for_gpu, "measure", fail)
    with pytest.raises(BuildError, match=r"for sm_90, any address: .*no layout"):
        for_gpu.compile_all([symbolic()], options)


def test_records_are_read_as_they_were_written_and_once(file: Path) -> None:
    record = Record("zoo.bert infer assay-sm90", "kernel_0", "d1", COMPILED, "", (SMALL, replace(SMALL, warps=8)))
    resources.write(record)
    resources.write(record)
    assert resources.read(file) == [record]


def test_summary_tells_spills_from_registers_kept_over_a_call() -> None:
    short = replace(SMALL, registers=255, stack_bytes=96, spill_bytes=88)
    many_warps = replace(short, registers=128, warps=16, wanted_warps=16)
    called = replace(SMALL, registers=72, stack_bytes=8, spill_bytes=4)
    assert short.is_short_of_registers and many_warps.is_short_of_registers and not called.is_short_of_registers
    found = [
        Record("a", f"kernel_{n}", f"d{n}", COMPILED, "", (each,)) for n, each in enumerate((short, called, SMALL))
    ]
    text = "\n".join(resources.summary([*found, found[0], Record("b", "kernel_7", "d7", NO_TEXT, "no digamma", ())]))
    assert "5 kernels, 4 distinct: 3 compiled" in text and "at most 255" in text
    assert "1 spill; 1 more store registers around a call, at most 4 bytes" in text and "kernel_0 of a (d0): 88" in text
    assert "no text, 1 kernels, as kernel_7 of b: no digamma" in text


def test_summary_of_nothing_claims_nothing() -> None:
    assert resources.summary([])[0].startswith("0 kernels, 0 distinct")


def test_run_records_kernels_of_processes_of_their_own(tmp_path: Path) -> None:
    cases, file = tmp_path / "mine.py", tmp_path / "kernels.jsonl"
    cases.write_text(CASES)
    arguments = ["run", str(cases), "--backend", "assay-sm90", "--isolate", "--kernels", str(file)]
    done = CliRunner(env={"COLUMNS": "400"}).invoke(commands, arguments)
    assert done.exit_code == 0 and "distinct" in done.output, done.output
    found = resources.read(file)
    assert {record.case for record in found} == {"mine.powers infer assay-sm90"}
    assert {record.end for record in found} == {COMPILED, NO_TEXT}
    again = CliRunner().invoke(commands, ["kernels", str(file), str(file)])
    assert again.exit_code == 0 and "6 kernels, 3 distinct" in again.output, again.output
    sizes_known, sizes_as_symbols = [USUAL, UNALIGNED], [USUAL, WIDE_INDEX, UNALIGNED]  # of twice the batch
    assert [record.variant for record in found if record.end == COMPILED] == [*sizes_known, *sizes_as_symbols]


def test_run_of_another_backend_records_no_kernels(tmp_path: Path) -> None:
    arguments = ["run", "zoo", "--backend", "eager", "--kernels", str(tmp_path / "kernels.jsonl")]
    done = CliRunner().invoke(commands, arguments)
    assert done.exit_code == 2 and "assay-sm90" in done.output


def test_run_says_where_kernels_cannot_be_written(tmp_path: Path) -> None:
    place = str(tmp_path / "no" / "such" / "kernels.jsonl")
    done = CliRunner(env={"COLUMNS": "400"}).invoke(commands, ["run", "--backend", "assay-sm90", "--kernels", place])
    assert done.exit_code == 2 and "cannot be written" in done.output
