"""Benchmarks: one backend against others, a fresh process for each case, so that a crash never ends the run.

Every ratio is theirs over ours, so above 1 is better for us. A row whose verdict is not `same` counts in no mean, and
none whose quartiles are too far apart, which is marked `~`. The steady state of all pairs of a case shares a process
and alternates. Each cold compile has a process of its own with empty caches, where peak memory is measured too.

    JSON: {"schema": 1, "environment", "interrupted", "rows", "summary", "left_out"}
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.text import Text

from assay.harness.bench.bench_worker import AHEAD, EAGER, Request, rival
from assay.harness.case import Case
from assay.harness.measure import geometric_mean, memory_ratio, ratio
from assay.harness.outcome import is_noise
from assay.harness.processes import worker
from assay.harness.report import progress
from assay.harness.report.documents import SCHEMA, finite, milliseconds, percent, seconds, times


@dataclass(frozen=True, slots=True)
class Subject:
    """A case with the modes and the size in which it is measured."""

    case: Case
    modes: tuple[str, ...]
    size: str


@dataclass(frozen=True, slots=True)
class Settings:
    """What holds for the whole run."""

    backend: str
    against: tuple[str, ...]
    seed: int
    device: str
    rounds: int
    timeout_s: float
    steady_only: bool = False
    precision: str = "float32"


@dataclass(frozen=True, slots=True)
class BenchRow:
    """One case in one mode against one other. `speed_spread` are the quartiles of the ratios of single rounds;
    `copy_share` is how near a memory-bound case comes to the speed of a copy of as many bytes, `dynamo_ms` Dynamo's own
    share of a call whose overhead is measured."""

    case: str
    mode: str
    backend: str
    against: str
    ms: float | None
    against_ms: float | None
    speed_ratio: float | None
    speed_spread: tuple[float, float] | None
    compile_s: float | None
    against_compile_s: float | None
    compile_ratio: float | None
    memory_ratio: float | None
    verdict: str
    copy_share: float | None = None
    dynamo_ms: float | None = None

    @property
    def counts(self) -> bool:
        """Whether it is part of the means."""
        return self.verdict == "same" and self.speed_ratio is not None and not self.is_noise

    @property
    def is_noise(self) -> bool:
        return self.speed_spread is not None and is_noise(self.speed_spread)


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A row that counts in no mean, and why."""

    case: str
    mode: str
    against: str
    reason: str


@dataclass(frozen=True, slots=True)
class Summary:
    """Geometric means over the rows that count, against one other."""

    against: str
    rows: int
    counted: int
    speed_ratio: float | None
    compile_ratio: float | None
    total_compile_ratio: float | None
    memory_ratio: float | None
    copy_shares: tuple[float, ...] = ()
    """Those of the memory-bound rows that count, the smallest first."""


@dataclass(frozen=True, slots=True)
class Bench:
    """What a run of benchmarks came to."""

    rows: tuple[BenchRow, ...]
    left_out: tuple[LeftOut, ...]
    interrupted: bool

    @property
    def passes(self) -> bool:
        return all(row.verdict == "same" for row in self.rows)


@dataclass(frozen=True, slots=True)
class Answer:
    """What a worker said by mode, and how it ended where it did not end well."""

    by_mode: dict[str, dict[str, Any]]
    failure: tuple[str, str] | None = None
    """`timeout` or `crash`, and a sentence."""


def run_bench(console: Console, subjects: Sequence[Subject], settings: Settings) -> Bench:
    """Measures every subject; what has ended when the user interrupts is kept."""
    measured: list[tuple[BenchRow, str]] = []
    interrupted = False
    processes = sum(1 + sum(1 for _ in cold_requests(subject, settings)) for subject in subjects)
    with progress.progress(console, processes) as shown:
        try:
            for subject in subjects:
                measured += measure_subject(shown, subject, settings)
        except KeyboardInterrupt:
            interrupted = True
    left_out = (LeftOut(row.case, row.mode, row.against, reason) for row, reason in measured if not row.counts)
    return Bench(tuple(row for row, _ in measured), tuple(left_out), interrupted)


def measure_subject(shown: progress.Progress, subject: Subject, settings: Settings) -> Iterator[tuple[BenchRow, str]]:
    """The rows of one case, each with the reason why it would count in no mean."""
    steady = asked(shown, steady_request(subject, settings), settings.timeout_s)
    cold: dict[tuple[str, str], Answer] = {}
    for request in cold_requests(subject, settings):
        (mode,) = request.modes
        if steady.by_mode.get(mode, {}).get("pairs"):
            cold[request.backend, mode] = asked(shown, request, settings.timeout_s)
        else:
            shown.skip()  # the program does not run at all, and its row counts in no mean
    for mode in subject.modes:
        for against in settings.against:
            yield assemble(subject.case.name, mode, against, settings, steady, cold)


def steady_request(subject: Subject, settings: Settings) -> Request:
    return Request(
        kind="steady", origin=subject.case.origin, case=subject.case.name, modes=subject.modes,
        backend=settings.backend, against=settings.against, size=subject.size, seed=settings.seed,
        device=settings.device, rounds=settings.rounds, precision=settings.precision,
    )  # fmt: skip


def cold_requests(subject: Subject, settings: Settings) -> Iterator[Request]:
    """One for each mode of each backend; none where only the steady state is asked for."""
    if settings.steady_only:
        return
    request = dataclasses.replace(steady_request(subject, settings), kind="cold", against=(), rounds=0)
    for mode in subject.modes:
        for backend in dict.fromkeys((settings.backend, *(rival(name) for name in settings.against if name != AHEAD))):
            yield dataclasses.replace(request, backend=backend, modes=(mode,))


def assemble(
    case: str, mode: str, against: str, settings: Settings, steady: Answer, cold: Mapping[tuple[str, str], Answer]
) -> tuple[BenchRow, str]:
    """One row from what the workers said; what they could not say is None."""
    said = steady.by_mode.get(mode, {})
    verdict, detail = (said["verdict"], said["detail"]) if said else steady.failure or ("crash", "no answer")
    pair = said.get("pairs", {}).get(against, {})
    if verdict == "same" and pair.get("is_crash"):
        verdict, detail = "crash", pair["error"]
    ours, theirs = (answered(cold.get((name, mode)), mode) for name in (settings.backend, rival(against)))
    compile_s, against_compile_s = ours.get("compile_s"), None if against == EAGER else theirs.get("compile_s")
    if against == AHEAD:
        ours, theirs, compile_s = {}, {}, None
    memory = memory_ratio(theirs.get("peak_bytes"), ours.get("peak_bytes"))
    row = BenchRow(
        case, mode, settings.backend, against,
        pair.get("ms"), pair.get("against_ms"), pair.get("speed_ratio"), pair.get("speed_spread"),
        compile_s, against_compile_s, ratio(against_compile_s, compile_s), memory, verdict, pair.get("copy_share"),
        pair.get("dynamo_ms"),
    )  # fmt: skip
    if verdict != "same":
        return row, f"{verdict}: {detail}"
    noise = f"noise: the quartiles of its speed are {spread(row.speed_spread)}" if row.is_noise else ""
    return row, pair.get("error", "") or noise


def answered(answer: Answer | None, mode: str) -> Mapping[str, Any]:
    """What was said of a mode; nothing where the worker was not asked or did not get that far."""
    return answer.by_mode.get(mode, {}) if answer is not None else {}


def asked(shown: progress.Progress, request: Request, timeout_s: float) -> Answer:
    """Runs a worker with the progress told before and after."""
    shown.begin(f"{request.case} {' '.join(request.modes)}: {request.kind} {request.backend}")
    answer = ask(request, timeout_s)
    shown.end(answer_line(request, answer))
    return answer


def ask(request: Request, timeout_s: float) -> Answer:
    """Runs one worker to its end, or to the limit; a cold one with empty caches.

    A cold one's peak memory is measured with each large block mapped by itself: our compiler is not to ask the heap.
    """
    is_cold = request.kind == "cold"
    environment: AbstractContextManager[dict[str, str]] = worker.cold_environment() if is_cold else nullcontext({})
    with environment as extra:
        heap = {"ASSAY_KEEP_MEMORY": os.environ.get("ASSAY_KEEP_MEMORY", "0")} if is_cold else {}
        said = worker.ask("assay.harness.bench.bench_worker", dataclasses.asdict(request), timeout_s, {**extra, **heap})
    return Answer({answer["mode"]: answer for answer in said.lines}, said.failure)


def answer_line(request: Request, answer: Answer) -> Text:
    """What one process found, in one line."""
    line = Text(f"{request.case} {request.kind} {request.backend}:")
    for mode, said in answer.by_mode.items():
        line += Text(f"  {mode} ")
        line += steady_text(said) if request.kind == "steady" else cold_text(said)
    if answer.failure is not None:
        line += Text(f"  {': '.join(answer.failure)}", style="bold red")
    return line


def steady_text(said: Mapping[str, Any]) -> Text:
    text = progress.verdict_text(said["verdict"])
    for against, pair in said["pairs"].items():
        text += Text(
            f" {times(pair['speed_ratio'])} {against}" if not pair["error"] else f" {against}: {pair['error']}"
        )
    return text


def cold_text(said: Mapping[str, Any]) -> Text:
    return Text(said["error"], style="bold red") if said["error"] else Text(f"{seconds(said['compile_s'])} s")


def summarize(rows: Sequence[BenchRow]) -> tuple[Summary, ...]:
    """One summary for each other that was timed against."""
    return tuple(
        _summary(against, [row for row in rows if row.against == against])
        for against in dict.fromkeys(row.against for row in rows)
    )


def _summary(against: str, rows: Sequence[BenchRow]) -> Summary:
    counted = [row for row in rows if row.counts]
    compiled = [row for row in counted if row.compile_s is not None and row.against_compile_s is not None]
    return Summary(
        against=against,
        rows=len(rows),
        counted=len(counted),
        speed_ratio=geometric_mean(row.speed_ratio for row in counted),
        compile_ratio=geometric_mean(row.compile_ratio for row in counted),
        total_compile_ratio=ratio(
            sum(row.against_compile_s or 0.0 for row in compiled), sum(row.compile_s or 0.0 for row in compiled)
        ),
        memory_ratio=geometric_mean(row.memory_ratio for row in counted),
        copy_shares=tuple(sorted(row.copy_share for row in counted if row.copy_share is not None)),
    )


def document(done: Bench, environment: Mapping[str, Any]) -> dict[str, Any]:
    """The JSON report as plain data."""
    return finite(
        {
            "schema": SCHEMA,
            "environment": dict(environment),
            "interrupted": done.interrupted,
            "rows": [dataclasses.asdict(row) for row in done.rows],
            "summary": [dataclasses.asdict(summary) for summary in summarize(done.rows)],
            "left_out": [dataclasses.asdict(left_out) for left_out in done.left_out],
        }
    )


def show(console: Console, done: Bench) -> None:
    """The table, the means, and what is in no mean and why."""
    table = progress.table(
        ("case", "mode", "against", "verdict"),
        ("ms", "against ms", "speed", "spread", "compile s", "against s", "compile", "memory", "of copy", "Dynamo ms"),
    )
    for row in done.rows:
        table.add_row(row.case, row.mode, row.against, progress.verdict_text(row.verdict), *numbers(row))
    console.print(table)
    for summary in summarize(done.rows):
        console.print(summary_line(summary), soft_wrap=True)
    if done.left_out:
        console.print(f"In no mean are {len(done.left_out)} of {len(done.rows)} rows:", style="bold")
    for left_out in done.left_out:
        console.print(Text(f"  {left_out.case} {left_out.mode} against {left_out.against}: {left_out.reason}"))
    if done.interrupted:
        console.print("Interrupted; only the cases that had ended are reported.", style="bold yellow")


def numbers(row: BenchRow) -> tuple[str, ...]:
    return (
        milliseconds(row.ms), milliseconds(row.against_ms),
        "~" * row.is_noise + times(row.speed_ratio), spread(row.speed_spread),
        seconds(row.compile_s), seconds(row.against_compile_s), times(row.compile_ratio), times(row.memory_ratio),
        percent(row.copy_share), milliseconds(row.dynamo_ms),
    )  # fmt: skip


def spread(value: tuple[float, float] | None) -> str:
    return "" if value is None else f"{value[0]:.2f} to {value[1]:.2f}"


def summary_line(summary: Summary) -> Text:
    """The means against one other, in words that need no table."""
    return Text(
        f"Against {summary.against}, geometric means over {summary.counted} of {summary.rows} rows: "
        f"speed {times(summary.speed_ratio)}, compile {times(summary.compile_ratio)} "
        f"(of the totals {times(summary.total_compile_ratio)}), memory {times(summary.memory_ratio)}{_copies(summary)}",
        style="bold",
    )


def _copies(summary: Summary) -> str:
    shares = summary.copy_shares
    if not shares:
        return ""
    return (
        f"; the {len(shares)} memory-bound ones reach {percent(shares[0])} to {percent(shares[-1])} of a copy's speed"
    )
