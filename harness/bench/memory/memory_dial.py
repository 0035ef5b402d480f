"""What a memory budget buys: `assay bench memory [MODEL]` trains one model at each budget, and in eager.

All of them are timed in alternating rounds of one process. The peak of each is measured in a process of its own. A
budget passes on two conditions. Its gradients are eager's, with the same numbers drawn. Its peak is not above that of a
higher budget by more than `SLACK`, the least difference that the resident set of a process shows.

    JSON: {"schema": 1, "environment", "case", "rows": [
           {"budget", "ms", "peak_bytes", "gradient_error", "time_ratio", "peak_ratio", "error"}]}
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from rich.console import Console
from rich.table import Table

from assay.harness.bench.models import Subject
from assay.harness.processes import worker
from assay.harness.report.documents import SCHEMA, finite, milliseconds, percent

BUDGETS = (1.0, 0.8, 0.6, 0.5, 0.4, 0.2, 0.0)
NOTHING = milliseconds(None)
SLACK = 0.04
"""The share of the peak at budget 1 by which two measurements of one program differ."""
MOST_ERROR = 1e-3
"""The largest difference of a gradient from eager's, over the largest element of that gradient."""


@dataclass(frozen=True, slots=True)
class Row:
    """A step at one budget; of eager, `budget` is None. Ratios are over the step at budget 1."""

    budget: float | None
    ms: float | None
    peak_bytes: int | None
    gradient_error: float | None
    time_ratio: float | None = None
    peak_ratio: float | None = None
    error: str = ""


@dataclass(frozen=True, slots=True)
class Dial:
    """What a run came to."""

    rows: tuple[Row, ...]
    case: str = ""

    @property
    def passes(self) -> bool:
        ours = [row for row in self.rows if row.budget is not None]
        if not ours or any(row.error or row.peak_ratio is None for row in ours):
            return False
        is_right = all((row.gradient_error or 0) <= MOST_ERROR for row in ours)
        return is_right and all((b.peak_ratio or 0) <= (a.peak_ratio or 0) + SLACK for a, b in pairwise(ours))


def run_dial(
    subject: Subject, backend: str, seed: int, rounds: int, timeout_s: float, budgets: Sequence[float] = BUDGETS
) -> Dial:
    """Measures the times together, then each peak."""
    with worker.cold_environment() as extra:

        def asked(kind: str, of: list[float | None]) -> worker.Answer:
            request = request_of(subject, kind, backend, seed) | {"budgets": of, "rounds": rounds}
            return worker.ask("assay.harness.bench.memory.memory_worker", request, timeout_s, extra)

        timed = asked("times", [None, *budgets])
        if timed.failure is not None:
            return Dial((Row(1.0, None, None, None, error=": ".join(timed.failure)),), subject.case.name)
        rows = []
        for line in timed.lines:
            peak = asked("peak", [line["budget"]])
            found = peak.lines[0]["peak_bytes"] if peak.lines else None
            rows.append(Row(**line, peak_bytes=found, error=": ".join(peak.failure or ())))
    return Dial(tuple(with_ratios(rows)), subject.case.name)


def request_of(subject: Subject, kind: str, backend: str, seed: int) -> dict[str, Any]:
    """What `assay.harness.bench.memory.memory_worker` is asked."""
    case = subject.case
    return {"kind": kind, "origin": case.origin, "case": case.name, "size": subject.size, "seed": seed,
            "backend": backend, "budgets": (), "rounds": 0}  # fmt: skip


def with_ratios(rows: Sequence[Row]) -> list[Row]:
    first = next((row for row in rows if row.budget == 1), None)
    if first is None or not first.ms or not first.peak_bytes:
        return list(rows)
    return [
        dataclasses.replace(row, time_ratio=row.ms / first.ms, peak_ratio=row.peak_bytes / first.peak_bytes)
        if row.ms and row.peak_bytes
        else row
        for row in rows
    ]


def document(done: Dial, environment: Mapping[str, Any]) -> dict[str, Any]:
    """The JSON report as plain data."""
    rows = [dataclasses.asdict(row) for row in done.rows]
    return finite({"schema": SCHEMA, "environment": dict(environment), "case": done.case, "rows": rows})


def show(console: Console, done: Dial) -> None:
    table = Table("budget", "ms", "of 1.0", "peak MB", "of 1.0", "gradients off by", "")
    for row in done.rows:
        table.add_row(
            "eager" if row.budget is None else f"{row.budget:g}",
            milliseconds(row.ms),
            percent(row.time_ratio),
            NOTHING if row.peak_bytes is None else f"{row.peak_bytes / 2**20:.1f}",
            percent(row.peak_ratio),
            NOTHING if row.gradient_error is None else f"{row.gradient_error:.1e}",
            row.error,
        )
    console.print(table)
