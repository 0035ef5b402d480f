"""What each part of the language costs: `assay bench language`.

A figure is one program under the backend beside the same under another, or beside a simpler one under the same backend:

    beside      the other's time over ours; at least the bar
    over        the time over that of the simpler program; at most the bar
    first_call  the same of first calls with empty caches
    an_input    microseconds that each input adds to the simpler program's call; at most the bar

Each figure has a process of its own. Before it is timed, the program's results are held to eager's.

    JSON: {"schema": 1, "environment", "interrupted", "rows"}
"""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.text import Text

from assay.harness.processes import worker
from assay.harness.report import progress
from assay.harness.report.documents import SCHEMA, UNKNOWN, finite

PROGRAMS = "assay.suites.benchmarks.language"
WORKER = "assay.harness.bench.language_worker"


@dataclass(frozen=True, slots=True)
class Subject:
    """What is called: a function, and the arguments of the calls, which a step takes in turn. `is_recorded` asks both
    backends for CUDA graphs, and `trains` for a backward of the sum of the result."""

    function: Callable[..., Any]
    calls: tuple[tuple[Any, ...], ...]
    trains: bool = False
    is_recorded: bool = False


Make = Callable[[str], Subject]
"""Makes a subject afresh, on a device."""


@dataclass(frozen=True, slots=True)
class Figure:
    """One figure of the table; `simpler` is None where the comparison is `beside` the other backend. `config` sets
    options of Dynamo's."""

    name: str
    comparison: str
    bar: float
    make: Make
    simpler: Make | None = None
    inputs: int = 1
    devices: tuple[str, ...] = ("cpu", "cuda")
    config: Mapping[str, Any] = dataclasses.field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Request:
    """A figure to measure. `side` names the one subject whose first call is measured."""

    figure: str
    backend: str
    against: str
    device: str
    rounds: int
    side: str = ""


@dataclass(frozen=True, slots=True)
class Row:
    """A figure as measured. `ms` is ours, `other_ms` what it is compared with. Where both are over a simpler program,
    `rival` is the other backend's figure, and `dynamo` that of Dynamo with eager operators. `eager` counts the nodes of
    graphs that ran in eager."""

    figure: str
    comparison: str
    bar: float
    value: float | None = None
    spread: tuple[float, float] | None = None
    ms: float | None = None
    other_ms: float | None = None
    rival: float | None = None
    dynamo: float | None = None
    nodes: int | None = None
    generated: int | None = None
    eager: int | None = None
    error: str = ""

    @property
    def passes(self) -> bool:
        if self.value is None or self.error:
            return False
        return self.value >= self.bar if self.comparison == "beside" else self.value <= self.bar


@dataclass(frozen=True, slots=True)
class Plan:
    """What to measure."""

    backend: str
    against: str
    text: str
    device: str
    rounds: int
    timeout_s: float


@dataclass(frozen=True, slots=True)
class Language:
    """What a run came to."""

    rows: tuple[Row, ...]
    interrupted: bool

    @property
    def passes(self) -> bool:
        return all(row.passes for row in self.rows)


def figures() -> dict[str, Figure]:
    """The figures of the suite, by name."""
    return {figure.name: figure for figure in importlib.import_module(PROGRAMS).FIGURES}


def run_language(console: Console, plan: Plan) -> Language:
    """Measures each figure whose name holds the text; what has ended when the user interrupts is kept."""
    chosen = [each for each in figures().values() if plan.text in each.name and plan.device in each.devices]
    rows: list[Row] = []
    interrupted = False
    with progress.progress(console, len(chosen)) as shown:
        try:
            for figure in chosen:
                shown.begin(figure.name)
                rows.append(first_calls(figure, plan) if figure.comparison == "first_call" else timed(figure, plan))
                shown.end(line_of(rows[-1]))
        except KeyboardInterrupt:
            interrupted = True
    return Language(tuple(rows), interrupted)


def timed(figure: Figure, plan: Plan) -> Row:
    """A figure whose sides alternate in one process."""
    request = Request(figure.name, plan.backend, plan.against, plan.device, plan.rounds)
    return row_of(figure, worker.ask(WORKER, dataclasses.asdict(request), plan.timeout_s, {}))


def first_calls(figure: Figure, plan: Plan) -> Row:
    """A figure of first calls: a process with empty caches for each program under each backend."""
    seconds: dict[tuple[str, str], float] = {}
    known: dict[str, Any] = {}
    for backend in (plan.backend, plan.against):
        for side in ("whole", "simpler"):
            request = Request(figure.name, backend, plan.against, plan.device, plan.rounds, side)
            with worker.cold_environment() as extra:
                answer = worker.ask(WORKER, dataclasses.asdict(request), plan.timeout_s, extra)
            if answer.failure or not answer.lines or answer.lines[0].get("error"):
                if backend == plan.backend:
                    return row_of(figure, answer)
                continue
            seconds[backend, side] = answer.lines[0]["first_s"]
            if (backend, side) == (plan.backend, "whole"):
                known = {name: answer.lines[0][name] for name in ("nodes", "generated", "eager")}
    ours, base = seconds[plan.backend, "whole"], seconds[plan.backend, "simpler"]
    theirs = seconds.get((plan.against, "whole")), seconds.get((plan.against, "simpler"))
    rival = theirs[0] / theirs[1] if theirs[0] and theirs[1] else None
    return Row(
        figure.name, figure.comparison, figure.bar, ours / base, None, ours * 1e3, base * 1e3, rival, **known
    )  # fmt: skip


def row_of(figure: Figure, answer: worker.Answer) -> Row:
    """The row of a worker's answer, or of how it ended."""
    said = dict(answer.lines[0]) if answer.lines else {"error": ": ".join(answer.failure or ("crash", "no answer"))}
    spread = said.pop("spread", None)
    return Row(figure.name, figure.comparison, figure.bar, spread=tuple(spread) if spread else None, **said)


def document(done: Language, environment: Mapping[str, Any]) -> dict[str, Any]:
    """The JSON report as plain data."""
    return finite(  # type: ignore[no-any-return]
        {
            "schema": SCHEMA,
            "environment": dict(environment),
            "interrupted": done.interrupted,
            "rows": [dataclasses.asdict(row) | {"passes": row.passes} for row in done.rows],
        }
    )


def line_of(row: Row) -> Text:
    return Text(f"{row.figure}: {row.error or figure_text(row)}", style="" if row.passes else "red")


def figure_text(row: Row) -> str:
    """The figure with its unit and its bar."""
    unit = " us an input" if row.comparison == "an_input" else ""
    limit = "at least" if row.comparison == "beside" else "at most"
    return f"{_number(row.value)}{unit} ({limit} {row.bar:g})"


def show(console: Console, done: Language) -> None:
    """A line a figure, with its times, the other backend's figure, and how much of the program was generated."""
    numbers = ("value", "bar", "spread", "ms", "other ms", "rival", "Dynamo", "generated")
    table = progress.table(("figure", "compares"), numbers)
    for row in done.rows:
        spread = UNKNOWN if row.spread is None else f"{row.spread[0]:.2f} to {row.spread[1]:.2f}"
        made = UNKNOWN if row.nodes is None else f"{row.generated} of {row.nodes}"
        times = map(_number, (row.ms, row.other_ms, row.rival, row.dynamo))
        table.add_row(row.figure, row.comparison, _number(row.value), f"{row.bar:g}", spread, *times, made)
    console.print(table)
    for row in done.rows:
        if row.error:
            console.print(Text(f"{row.figure}: {row.error}"), soft_wrap=True)
    if done.interrupted:
        console.print("Interrupted; only the figures that had ended are reported.", style="bold yellow")


def _number(value: float | None) -> str:
    return UNKNOWN if value is None else f"{value:.3g}"
