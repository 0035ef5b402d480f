"""`assay.harness.bench.compiled_autograd`: what passes, and programs measured in processes of their own."""

from __future__ import annotations

import pytest
from rich.console import Console

from assay.harness.bench import compiled_autograd
from assay.harness.bench.compiled_autograd import EAGER, Figure, Measured, Plan, figures, least, row_of
from assay.suites.benchmarks.whole_backward import UNRECORDED

OURS, OTHER = "assay,own_backward", "inductor,compiled_autograd"


def figure(comparison: str, bar: float) -> Figure:
    return Figure("one", "tiny", "backward_ms", comparison, {"cpu": bar}, OURS, OTHER)


@pytest.mark.parametrize(
    "comparison, bar, value, passes",
    [
        ("ratio", 0.8, 0.5, True),
        ("ratio", 0.4, 0.5, False),
        ("gain", 1.3, 2.0, True),
        ("gain", 2.5, 2.0, False),
        ("share", 0.6, 1 / 3, True),
        ("over", 900, 1000, False),
        ("value", 3, 2, True),
    ],
)
def test_a_figure_compares_what_was_measured(comparison: str, bar: float, value: float, passes: bool) -> None:
    found: Measured = {("tiny", OURS): {"backward_ms": 2.0}, ("tiny", OTHER): {"backward_ms": 4.0}}
    found["tiny", EAGER] = {"backward_ms": 1.0}
    row = row_of(figure(comparison, bar), "cpu", found)
    assert row.value == pytest.approx(value) and row.passes is passes


def test_a_share_of_no_excess_is_the_ratio_of_the_times() -> None:
    found: Measured = {("tiny", OURS): {"backward_ms": 2.0}, ("tiny", OTHER): {"backward_ms": 4.0}}
    found["tiny", EAGER] = {"backward_ms": 5.0}
    assert row_of(figure("share", 0.6), "cpu", found).value == 0.5


def test_a_figure_without_numbers_does_not_pass() -> None:
    row = row_of(figure("ratio", 9), "cpu", {("tiny", OURS): {"error": "a gradient is off"}})
    assert not row.passes and "a gradient is off" in row.error


def test_the_least_of_the_rounds_counts() -> None:
    assert least({"ms": 3.0}, {"ms": 2.0}) == {"ms": 2.0}
    assert least({"error": "x"}, {"ms": 2.0}) == {"ms": 2.0}
    assert least({"ms": 3.0}, {"error": "x"}) == {"ms": 3.0}


def test_figures_are_those_against_the_named() -> None:
    everybody = list(figures(("inductor", "eager")))
    assert {each.other for each in figures(("eager",))} == {EAGER, "assay", UNRECORDED}
    assert any(each.other == OTHER for each in everybody) and len({each.name for each in everybody}) == len(everybody)


def test_a_program_is_measured_in_a_process_of_its_own() -> None:
    plan = Plan(("eager",), "tiny above eager (us)", "cpu", 1, 300)
    done = compiled_autograd.run_compared(Console(quiet=True), plan)
    (row,) = done.rows
    assert row.value is not None and not row.error and set(done.measured) == {("tiny", OURS), ("tiny", EAGER)}
    assert compiled_autograd.document(done, {})["measured"]
