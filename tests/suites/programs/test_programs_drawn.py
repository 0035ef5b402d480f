"""Drawn programs are valid, run as they are printed, use every operation, and know smaller ones."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace

import pytest
import torch
from hypothesis import HealthCheck, given, settings

from assay.harness.run import RunRequest, run_case
from assay.harness.search.generated import case_of
from assay.suites.programs import Generated, draw
from assay.suites.programs.calls import errors_of_calls
from assay.suites.programs.choices import Choices
from assay.suites.programs.draw import draw_program, is_defined, layout_of
from assay.suites.programs.operations import FAMILIES, OPERATIONS
from assay.suites.programs.program import Line, Number, Program, Storage
from assay.suites.programs.simplify import simpler, weight
from assay.suites.programs.strategies import programs

COUNT = 300


@pytest.fixture(scope="module")
def drawn() -> list[Generated]:
    return [draw(f"test:{number}") for number in range(COUNT)]


def test_programs_are_valid_but_for_a_few() -> None:
    plain = [Generated(draw_program(Choices.seeded(f"test:{number}"))) for number in range(COUNT)]
    raising = sum(program.raises() for program in plain)
    assert 0 < raising <= 0.05 * len(plain)


def test_one_program_in_three_takes_numbers(drawn: list[Generated]) -> None:
    numbered = [program.program for program in drawn if program.program.numbers]
    assert 0.25 * COUNT < len(numbered) < 0.4 * COUNT
    assert sum(len(program.calls) > 2 for program in numbered) > 0.85 * len(numbered)


def test_numbers_change_and_raise_before_any_write(drawn: list[Generated]) -> None:
    for program in drawn:
        numbered = program.program
        if numbered.numbers:
            errors = errors_of_calls(numbered)  # raises where a call raises after it has written
            assert len(errors) == 2 * len(numbered.calls) and errors[0] is None, program.source()
            assert len(set(numbered.calls)) == len(numbered.calls)


def test_a_call_that_raises_after_a_write_is_refused() -> None:
    writes, raises = line("{0}.add_(1)", "a"), line("{0}[{n}]", "a", to="v0")
    number = Number("n", ("1", "9"))
    assert is_defined(replace(small(raises, writes), numbers=(number,)))
    assert not is_defined(replace(small(writes, raises), numbers=(number,)))


def test_a_number_becomes_its_value() -> None:
    program = replace(small(line("{0}[{n}]", "a", to="v0")), numbers=(Number("n", ("1", "-2")),))
    assert "NUMBERS = [(1,), (-2,)]" in program.source() and "a[n]" in program.source()
    sources = [candidate.source() for candidate in simpler(program)]
    assert any("a[(-2)]" in source and "NUMBERS" not in source for source in sources)
    assert any("NUMBERS = [(-2,)]" in source for source in sources)


def test_the_harness_gives_each_call_its_numbers() -> None:
    program = replace(small(line("{0} * {w}", "a", to="v0")), numbers=(Number("w", ("2", "3", "4", "5")),))
    program = replace(program, outputs=(line("{0}", "v0"), line("{w}")))
    case = case_of(program.source(), "program")
    assert run_case(case, "train", "eager-none", RunRequest(timed=False, quick=True)).verdict == "same"
    wrong = run_case(
        case, "infer", "tests.faulty_backends:keeps_the_first_numbers", RunRequest(timed=False, quick=True)
    )
    assert wrong.verdict == "diverged", wrong


def test_programs_are_their_seeds(drawn: list[Generated]) -> None:
    torch.manual_seed(99)
    random.seed(99)
    assert [draw(f"test:{number}").source() for number in range(20)] == [program.source() for program in drawn[:20]]
    assert len({program.source() for program in drawn}) > 0.98 * COUNT


def test_drawing_leaves_the_random_state() -> None:
    torch.manual_seed(5)
    before = torch.get_rng_state()
    assert any("torch.rand" in draw(f"random:{number}").source() for number in range(200))
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("mode", ["infer", "train"])
def test_printed_programs_run_to_the_same_result(drawn: list[Generated], mode: str) -> None:
    for program in drawn[:40]:
        result = run_case(case_of(program.source(), "program"), mode, "eager-none", RunRequest(timed=False, quick=True))
        assert result.verdict == "same", f"{program.source()}\n{result}"


def test_programs_cover_operations_layouts_and_dtypes(drawn: list[Generated]) -> None:
    covered = Counter(entry for program in drawn for entry in program.coverage)
    operations, layouts, dtypes = ({key[part] for key in covered} for part in range(3))
    assert operations <= OPERATIONS.keys()
    plain = {operation.name for _, family in FAMILIES for operation in family}
    assert len(operations & plain) > 0.85 * len(plain), sorted(plain - operations)
    assert len(operations - plain) > 0.5 * len(OPERATIONS.keys() - plain)
    assert {"0-d", "empty", "expanded", "contiguous", "offset", "strided", "transposed", "overlapping"} <= layouts
    assert len(dtypes) >= 9


def test_programs_take_every_kind_of_input(drawn: list[Generated]) -> None:
    text = "\n".join(program.source() for program in drawn)
    for part in (
        "requires_grad_().clone()",
        "torch.no_grad()",
        "with torch",
        "return [",
        "'k0'",
        "None",
        ".permute(0, 3",
    ):
        assert part in text, part
    assert any(line.template == "{0}" and line.args[0] in "abcd" for p in drawn for line in p.program.inputs)


def test_simpler_programs_are_smaller_and_print(drawn: list[Generated]) -> None:
    for program in drawn[:40]:
        size = weight(program.program)
        for candidate in simpler(program.program):
            assert weight(candidate) < size
            compile(candidate.source(), "<program>", "exec")


def line(template: str, *args: str, to: str = "") -> Line:
    return Line("test", template, args, (to,) if to else ())


def small(*steps: Line, view: str = "{0}") -> Program:
    return Program((Storage("s0", 8, "float32"),), (line(view, "s0", to="a"),), steps, (line("{0}", "a"),))


def test_dropping_a_step_puts_its_operand_in_its_place() -> None:
    program = small(line("{0}.t()", "a", to="v0"), line("{0}.add_(1)", "v0"))
    sources = [candidate.source() for candidate in simpler(program)]
    assert any("    a.add_(1)\n    return" in source and "v0" not in source for source in sources)


def test_writes_over_themselves_are_undefined() -> None:
    assert is_defined(small(line("{0}.add_(1)", "a")))
    assert not is_defined(small(line("{0}.add_(1)", "a"), view="{0}.as_strided((3, 3), (1, 1))"))
    assert is_defined(small(line("{0}.add(1)", "a", to="v0"), view="{0}.as_strided((3, 3), (1, 1))"))


def test_numbers_that_are_read_as_bits_are_not_computed() -> None:
    bits = line("{0}.view(torch.int32)", "a", to="v0")
    assert is_defined(small(bits, line("{0}.exp()", "a", to="v1"), line("{0}.add_(1)", "v0")))
    assert not is_defined(small(bits, line("{0}.exp_()", "a")))
    assert not is_defined(small(bits, line("torch.exp({0}, out={1})", "a", "a")))


def test_layouts_are_named() -> None:
    base = torch.arange(24.0)
    assert layout_of(base) == "contiguous"
    assert layout_of(base[2:]) == "offset"
    assert layout_of(base.view(4, 6).t()) == "transposed"
    assert layout_of(base[::2]) == "strided"
    assert layout_of(base[:1].expand(3)) == "expanded"
    assert layout_of(base.as_strided((3, 3), (1, 1))) == "overlapping"
    assert layout_of(base[0]) == "0-d" and layout_of(base[:0]) == "empty"
    assert layout_of(base.view(2, 2, 3, 2).permute(0, 3, 1, 2)) == "channels_last"


def test_choices_are_uniform_over_their_weights() -> None:
    choices = Choices.seeded("weights")
    counts = Counter(choices.weighted(((3, "a"), (1, "b"))) for _ in range(4000))
    assert 2800 < counts["a"] < 3200
    assert {choices.between(2, 4) for _ in range(50)} == {2, 3, 4}
    assert 0 < sum(choices.chance(10) for _ in range(1000)) < 200


@settings(max_examples=15, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck))
@given(program=programs())
def test_hypothesis_draws_programs(program: Generated) -> None:
    compile(program.source(), "<program>", "exec")
