"""Whole backwards against others: `assay bench compiled_autograd`.

A figure is one quantity of a program's backward under our compiled autograd, compared with the same under another way:

    ratio     ours over the other's; at most the bar
    gain      the other's over ours; at least the bar
    over      microseconds by which ours is above eager's; at most the bar
    share     that excess over the other's excess, or ours over the other's where the other has none; at most the bar
    value     ours alone; at most the bar

Each program has a process of its own under each way, with empty caches, in rounds that alternate; the least of the
rounds counts. Before it is timed, the gradients are held to eager's. Times on a CPU are the processor's.

    JSON: {"schema": 1, "environment", "interrupted", "rows", "measured"}
"""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rich.console import Console
from rich.text import Text

from assay.harness.processes import worker
from assay.harness.report import progress
from assay.harness.report.documents import SCHEMA, UNKNOWN, finite

PROGRAMS = "assay.suites.benchmarks.whole_backward"
WORKER = "assay.harness.bench.compiled_autograd_worker"
EAGER = "eager-none"
LEAST_OF = 3
"""Rounds from which one more no longer changes the least by much."""


@dataclass(frozen=True, slots=True)
class Figure:
    """One figure; `bars` are by device, and a device without one has no such figure. `other` is a backend."""

    name: str
    program: str
    quantity: str
    comparison: str
    bars: Mapping[str, float]
    ours: str
    other: str = EAGER

    @property
    def ways(self) -> tuple[str, ...]:
        """The backends whose numbers it takes."""
        if self.comparison == "value":
            return (self.ours,)
        return (self.ours, self.other, EAGER) if self.comparison in ("share", "over") else (self.ours, self.other)


@dataclass(frozen=True, slots=True)
class Plan:
    """What to measure; `against` are the other compilers."""

    against: tuple[str, ...]
    text: str
    device: str
    rounds: int
    timeout_s: float


@dataclass(frozen=True, slots=True)
class Row:
    """A figure as measured."""

    figure: str
    comparison: str
    bar: float
    value: float | None = None
    ours: float | None = None
    other: float | None = None
    error: str = ""

    @property
    def passes(self) -> bool:
        if self.value is None or self.error:
            return False
        return self.value >= self.bar if self.comparison == "gain" else self.value <= self.bar


Numbers = dict[str, Any]
Measured = dict[tuple[str, str], Numbers]
"""What each program's process gave under each backend; {"error"} where it gave nothing."""


@dataclass(frozen=True, slots=True)
class Compared:
    """What a run came to."""

    rows: tuple[Row, ...]
    interrupted: bool
    measured: Measured = field(default_factory=dict)

    @property
    def passes(self) -> bool:
        return all(row.passes for row in self.rows)


def figures(against: Sequence[str]) -> Iterable[Figure]:
    """The figures of the suite that compare with one of these, or with nobody."""
    named = {EAGER if each == "eager" else each for each in against}
    for figure in importlib.import_module(PROGRAMS).FIGURES:
        if figure.other.split(",")[0] in {*named, "assay"} or figure.comparison == "value":
            yield figure


def run_compared(console: Console, plan: Plan) -> Compared:
    """Measures each figure whose name holds the text; what has ended when the user interrupts is kept."""
    chosen = [each for each in figures(plan.against) if plan.text in each.name and plan.device in each.bars]
    asked = list(dict.fromkeys((figure.program, way) for figure in chosen for way in figure.ways))
    rounds = min(plan.rounds, LEAST_OF)
    found: Measured = {}
    interrupted = False
    with progress.progress(console, rounds * len(asked)) as shown:
        try:
            for _ in range(rounds):
                for program, way in asked:
                    shown.begin(f"{program} {way}")
                    new = _measure(program, way, plan)
                    found[program, way] = least(found.get((program, way)), new)
                    shown.end(Text(f"{program} {way}: {new.get('error', 'measured')}"))
        except KeyboardInterrupt:
            interrupted = True
    return Compared(tuple(row_of(figure, plan.device, found) for figure in chosen), interrupted, found)


def _measure(program: str, way: str, plan: Plan) -> Numbers:
    """One process: what it measures, or its error."""
    request = {"program": program, "backend": way, "device": plan.device}
    with worker.cold_environment() as extra:
        answer = worker.ask(WORKER, request, plan.timeout_s, extra)
    return dict(answer.lines[-1]) if answer.lines else {"error": ": ".join(answer.failure or ("crash", "no answer"))}


def least(before: Numbers | None, new: Numbers) -> Numbers:
    """The least of each number; a round that failed counts only where all did."""
    if before is None or "error" in before:
        return new
    return before if "error" in new else {name: min(before[name], new[name]) for name in before}


def row_of(figure: Figure, device: str, found: Measured) -> Row:
    """A figure from what was measured, or the first error among it."""
    row = Row(figure.name, figure.comparison, figure.bars[device])
    numbers = [found.get((figure.program, way), {"error": "not measured"}) for way in figure.ways]
    for way, each in zip(figure.ways, numbers, strict=True):
        if "error" in each:
            return dataclasses.replace(row, error=f"{way}: {each['error']}")
    values = [each[figure.quantity] for each in numbers]
    value = COMPARISONS[figure.comparison](*values)
    return dataclasses.replace(row, value=value, ours=values[0], other=values[1] if len(values) > 1 else None)


COMPARISONS: Mapping[str, Callable[..., float]] = {
    "ratio": lambda ours, other: ours / other,
    "gain": lambda ours, other: other / ours,
    "over": lambda ours, other, eager: (ours - eager) * 1e3,
    "share": lambda ours, other, eager: (ours - eager) / (other - eager) if other > eager else ours / other,
    "value": lambda ours: ours,
}
"""How the numbers of a figure's ways become its value; times are in milliseconds."""


def document(done: Compared, environment: Mapping[str, Any]) -> dict[str, Any]:
    """The JSON report as plain data."""
    measured = [{"program": program, "backend": way, **numbers} for (program, way), numbers in done.measured.items()]
    return finite(  # type: ignore[no-any-return]
        {
            "schema": SCHEMA,
            "environment": dict(environment),
            "interrupted": done.interrupted,
            "rows": [dataclasses.asdict(row) | {"passes": row.passes} for row in done.rows],
            "measured": measured,
        }
    )


def show(console: Console, done: Compared) -> None:
    """A line a figure, with the numbers that it compares."""
    table = progress.table(("figure", "compares"), ("value", "bar", "ours", "other"))
    for row in done.rows:
        limit = "at least" if row.comparison == "gain" else "at most"
        numbers = map(_number, (row.ours, row.other))
        style = "" if row.passes else "red"
        table.add_row(row.figure, row.comparison, _number(row.value), f"{limit} {row.bar:g}", *numbers, style=style)
    console.print(table)
    for row in done.rows:
        if row.error:
            console.print(Text(f"{row.figure}: {row.error}"), soft_wrap=True)
    if done.interrupted:
        console.print("Interrupted; only what had ended is reported.", style="bold yellow")


def _number(value: float | None) -> str:
    return UNKNOWN if value is None else f"{value:.3g}"
