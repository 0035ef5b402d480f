"""`assay.harness.bench.memory.memory_dial`: what passes, and one small model at every budget."""

from __future__ import annotations

import dataclasses
import json

import pytest
from rich.console import Console

from assay.harness.bench.memory import memory_dial
from assay.harness.bench.memory.memory_dial import BUDGETS, Dial, Row
from assay.harness.bench.models import Subject
from assay.harness.discover import discover


def rows(*peaks: int, error: float = 1e-6) -> tuple[Row, ...]:
    made = [Row(budget, 10.0 + place, peak << 20, error) for place, (budget, peak) in enumerate(zip(BUDGETS, peaks))]  # noqa: B905
    return tuple(memory_dial.with_ratios([Row(None, 20.0, 300 << 20, 0.0), *made]))


@pytest.mark.parametrize(
    "measured, passes",
    [
        (rows(200, 150, 120, 100, 90, 80, 70), True),
        (rows(200, 150, 153, 100, 90, 80, 70), True),
        (rows(200, 150, 170, 100, 90, 80, 70), False),
        (rows(200, 150, 120, error=0.1), False),
        ((*rows(200), Row(0.0, None, None, None, error="timeout: no answer")), False),
        ((), False),
    ],
)
def test_memory_passes_where_gradients_are_eagers_and_peaks_fall(measured: tuple[Row, ...], passes: bool) -> None:
    done = Dial(measured)
    assert done.passes is passes
    data = json.loads(json.dumps(memory_dial.document(done, {"torch": "2"})))
    assert [row["peak_bytes"] for row in data["rows"]] == [row.peak_bytes for row in measured]
    memory_dial.show(Console(width=200), done)


def subject() -> Subject:
    (case,) = discover(("assay.suites.benchmarks.memory",))
    return Subject(case, ("train",), "tiny")


def test_memory_measures_budgets_beside_eager() -> None:
    done = memory_dial.run_dial(subject(), "assay", 0, 1, 300, budgets=(1.0, 0.4))
    assert done.case == "benchmarks.transformer"
    assert [row.budget for row in done.rows] == [None, 1.0, 0.4], done.rows
    assert all(row.gradient_error is not None and row.gradient_error <= 1e-4 for row in done.rows), done.rows
    assert all(row.ms and row.time_ratio for row in done.rows)


def test_memory_says_what_did_not_end() -> None:
    done = memory_dial.run_dial(subject(), "assay", 0, 1, 0.2)
    assert not done.passes and "timeout" in done.rows[-1].error


def test_memory_ratios_are_over_budget_one() -> None:
    found = {row.budget: dataclasses.astuple(row)[4:6] for row in rows(200, 100)}
    assert found[0.8] == (pytest.approx(1.1), 0.5) and found[None] == (2.0, 1.5)
