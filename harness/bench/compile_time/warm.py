"""What a compile costs a fresh process whose caches an earlier one has filled: `assay bench warm`.

For each case, mode and backend one process fills a cache of its own, then others start with it. Their time is that of
the backend alone, as the median over the processes. It is the first call, less the first call under Dynamo's own
backend "eager", in the same process. It is the time of the processors: a warm start is short beside what other
processes do to the clock. Ratios are theirs over ours, so above 1 is better.

    JSON: {"schema": 1, "environment", "interrupted", "rows", "summary"}
"""

from __future__ import annotations

import dataclasses
import statistics
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from assay.harness.bench.bench_worker import Request
from assay.harness.bench.models import Settings, Subject, cold_requests
from assay.harness.measure import geometric_mean, ratio
from assay.harness.processes import worker
from assay.harness.processes.worker import warm_environment
from assay.harness.report import progress
from assay.harness.report.documents import SCHEMA, finite, seconds, times

PROCESSES = 3
"""How many fresh processes start with a filled cache."""
LEAST_S = 0.01
"""Differences of two first calls below this are noise, and count as this."""


@dataclass(frozen=True, slots=True)
class Started:
    """What one backend needs for one case: with empty caches, and started warm."""

    cold_s: float | None
    warm_s: float | None
    error: str = ""


@dataclass(frozen=True, slots=True)
class Row:
    """One case in one mode against one other."""

    case: str
    mode: str
    backend: str
    against: str
    cold_s: float | None
    warm_s: float | None
    against_cold_s: float | None
    against_warm_s: float | None
    warm_ratio: float | None
    error: str


@dataclass(frozen=True, slots=True)
class Warm:
    """What a run came to; it passes if every process of the backend itself ended well."""

    rows: tuple[Row, ...]
    interrupted: bool

    @property
    def passes(self) -> bool:
        return all(row.warm_s is not None for row in self.rows)


def run_warm(console: Console, subjects: Sequence[Subject], settings: Settings) -> Warm:
    """Measures every subject; what has ended when the user interrupts is kept."""
    rows: list[Row] = []
    interrupted = False
    settings = dataclasses.replace(settings, steady_only=False)
    requests = sum(1 for subject in subjects for _ in cold_requests(subject, settings))
    with progress.progress(console, requests) as shown:
        try:
            for subject in subjects:
                rows += measure_subject(shown, subject, settings)
        except KeyboardInterrupt:
            interrupted = True
    return Warm(tuple(rows), interrupted)


def measure_subject(shown: progress.Progress, subject: Subject, settings: Settings) -> Iterator[Row]:
    found: dict[tuple[str, str], Started] = {}
    for request in cold_requests(subject, settings):
        (mode,) = request.modes
        shown.begin(f"{request.case} {mode}: {request.backend}")
        started = found[request.backend, mode] = start(request, settings.timeout_s, min(settings.rounds, PROCESSES))
        shown.end(_line(request, started))
    for mode in subject.modes:
        for against in settings.against:
            ours, theirs = found[settings.backend, mode], found.get((against, mode), Started(None, None))
            yield row_of(subject.case.name, mode, settings.backend, against, ours, theirs)


def row_of(case: str, mode: str, backend: str, against: str, ours: Started, theirs: Started) -> Row:
    return Row(
        case, mode, backend, against, ours.cold_s, ours.warm_s, theirs.cold_s, theirs.warm_s,
        ratio(_told(theirs.warm_s), _told(ours.warm_s)), ours.error or theirs.error,
    )  # fmt: skip


def start(request: Request, timeout_s: float, processes: int) -> Started:
    """One process that fills a cache, and those that start with it."""
    with tempfile.TemporaryDirectory(prefix="assay-cache-") as folder:
        answers = [_first_call(request, timeout_s, warm_environment(Path(folder))) for _ in range(processes + 1)]
    errors = [error for _, error in answers if error]
    known = [spent for spent, _ in answers[1:] if spent is not None]
    return Started(answers[0][0], statistics.median(known) if known and not errors else None, "".join(errors[:1]))


def _first_call(request: Request, timeout_s: float, environment: Mapping[str, str]) -> tuple[float | None, str]:
    request = dataclasses.replace(request, kind="warm")
    answer = worker.ask("assay.harness.bench.bench_worker", dataclasses.asdict(request), timeout_s, environment)
    if not answer.lines:
        return None, ": ".join(answer.failure or ("crash", "no answer"))
    said = answer.lines[0]
    return said["compile_s"], said["error"]


def _told(spent: float | None) -> float | None:
    return None if spent is None else max(spent, LEAST_S)


def summary(rows: Sequence[Row]) -> dict[str, dict[str, Any]]:
    """By what is timed against: how many rows count, and the geometric mean of their ratios."""
    found: dict[str, dict[str, Any]] = {}
    for against in dict.fromkeys(row.against for row in rows):
        ratios = [row.warm_ratio for row in rows if row.against == against and row.warm_ratio is not None]
        found[against] = {"rows": len(ratios), "warm_ratio": geometric_mean(ratios)}
    return found


def document(done: Warm, environment: Mapping[str, Any]) -> dict[str, Any]:
    """The JSON report as plain data."""
    return finite(
        {
            "schema": SCHEMA,
            "environment": dict(environment),
            "interrupted": done.interrupted,
            "rows": [dataclasses.asdict(row) for row in done.rows],
            "summary": summary(done.rows),
        }
    )


def show(console: Console, done: Warm) -> None:
    """The table and the means."""
    table = progress.table(
        ("case", "mode", "against"), ("cold s", "warm s", "against cold s", "against warm s", "warm ratio")
    )
    for row in done.rows:
        spent = (seconds(s) for s in (row.cold_s, row.warm_s, row.against_cold_s, row.against_warm_s))
        table.add_row(row.case, row.mode, row.against, *spent, times(row.warm_ratio))
    console.print(table)
    for against, said in summary(done.rows).items():
        text = f"Warm starts against {against}, geometric mean over {said['rows']} rows: {times(said['warm_ratio'])}"
        console.print(Text(text, style="bold"))
    for row in done.rows:
        if row.error:
            console.print(Text(f"  {row.case} {row.mode} against {row.against}: {row.error}"))


def _line(request: Request, started: Started) -> Text:
    said = started.error or f"cold {seconds(started.cold_s)} s, warm {seconds(started.warm_s)} s"
    return Text(f"{request.case} {' '.join(request.modes)} {request.backend}: {said}")
