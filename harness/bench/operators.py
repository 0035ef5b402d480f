"""How long operators and fused pairs of them take beside eager: `assay bench operators`.

Each program is one call, compiled without Dynamo for each dtype and layout, and timed on one thread in alternating
rounds with the same call elsewhere. A row whose time is above `MOST` times the other's is measured again with three
times the rounds. A row passes within `MOST`. It passes where the other takes less than `LEAST_US`: there the fixed
cost of a call is measured, which `assay bench overhead` does. It passes where the ledger has an entry for it:

    case = "operators.NAME.DTYPE.LAYOUT", mode = "infer", field = "time"

    JSON: {"schema": 1, "environment", "interrupted", "most", "rows", "slow"}
"""

from __future__ import annotations

import dataclasses
import datetime
import importlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from rich.console import Console
from rich.text import Text

from assay.harness.bench.bench_worker import EAGER
from assay.harness.judge import ledger
from assay.harness.outcome import Difference, Result
from assay.harness.processes import worker
from assay.harness.report import progress
from assay.harness.report.documents import SCHEMA, UNKNOWN, finite

PROGRAMS = "assay.suites.benchmarks.operators"
MOST = 1.2
"""The largest share of eager's time that passes."""
LEAST_US = 20.0
"""Microseconds of the other below which a row is shown and does not count: the fixed cost of a call is 3 to 5."""
TOGETHER = 40
"""Programs that one process measures: enough to pay for its start."""
DTYPES = ("float32", "bfloat16", "float64")
LAYOUTS = ("contiguous", "transposed")

Made = tuple[Callable[..., object], tuple[torch.Tensor, ...]]


@dataclass(frozen=True, slots=True)
class Program:
    """One call: `make(dtype, layout)` gives a function of tensors, and the tensors. It raises where there is none."""

    name: str
    make: Callable[[torch.dtype, str], Made]
    dtypes: tuple[str, ...] = DTYPES
    layouts: tuple[str, ...] = LAYOUTS

    @property
    def cells(self) -> tuple[tuple[str, str], ...]:
        return tuple((dtype, layout) for dtype in self.dtypes for layout in self.layouts)


@dataclass(frozen=True, slots=True)
class Request:
    """What one process measures: every cell of these programs that is not in `done`."""

    programs: tuple[str, ...]
    backend: str
    against: tuple[str, ...]
    rounds: int
    seed: int
    done: tuple[tuple[str, str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Row:
    """One call in one dtype and layout beside one other. `ratio` is ours over the other's, below 1 is better for us;
    `spread` holds the quartiles of single rounds. `refused`: why there is no such call."""

    program: str
    dtype: str
    layout: str
    against: str
    ours_us: float | None = None
    against_us: float | None = None
    ratio: float | None = None
    spread: tuple[float, float] | None = None
    error: str = ""
    refused: str = ""

    @property
    def case(self) -> str:
        return f"operators.{self.program}.{self.dtype}.{self.layout}"

    @property
    def counts(self) -> bool:
        """Whether the bar is about this row: against eager, long enough, or failed."""
        is_short = self.against_us is not None and self.against_us < LEAST_US
        return self.against == EAGER and not self.refused and not is_short

    @property
    def is_slow(self) -> bool:
        return self.counts and (self.ratio is None or self.ratio > MOST)


@dataclass(frozen=True, slots=True)
class Plan:
    """What to measure."""

    backend: str
    against: tuple[str, ...]
    text: str
    rounds: int
    seed: int
    timeout_s: float


@dataclass(frozen=True, slots=True)
class Operators:
    """What a run came to, and what the ledger says of it."""

    plan: Plan
    rows: tuple[Row, ...]
    known: tuple[ledger.Known, ...]
    interrupted: bool

    @property
    def slow(self) -> tuple[tuple[Row, ledger.Judgement], ...]:
        """The rows above the bar, the slowest first."""
        found = sorted((row for row in self.rows if row.is_slow), key=lambda row: -(row.ratio or float("inf")))
        return tuple((row, judged(row, self.plan.backend, self.known)) for row in found)

    @property
    def passes(self) -> bool:
        return all(judgement.passes for _, judgement in self.slow)


def programs() -> dict[str, Program]:
    """The programs of the suite, by name."""
    return {program.name: program for program in importlib.import_module(PROGRAMS).programs()}


def judged(row: Row, backend: str, known: Sequence[ledger.Known]) -> ledger.Judgement:
    """What the ledger says of a row above the bar."""
    difference = Difference("error" if row.error else "time", row.program, row.error or ratio_text(row))
    result = Result(row.case, "infer", backend, "diverged", (difference,))
    return ledger.judge(result, known, datetime.date.today())


def run_operators(console: Console, plan: Plan, known: Sequence[ledger.Known]) -> Operators:
    """Measures the programs whose name holds the text; what has ended when the user interrupts is kept."""
    chosen = [program for program in programs().values() if plan.text in program.name]
    groups = [chosen[first : first + TOGETHER] for first in range(0, len(chosen), TOGETHER)]
    rows: list[Row] = []
    interrupted = False
    with progress.progress(console, len(groups)) as shown:
        try:
            for group in groups:
                shown.begin(" ".join(program.name for program in group))
                found = list(measured(group, plan))
                rows.extend(found)
                shown.end(group_line(group, found))
        except KeyboardInterrupt:
            interrupted = True
    return Operators(plan, tuple(rows), tuple(known), interrupted)


def measured(group: Sequence[Program], plan: Plan) -> Iterator[Row]:
    """The rows of a few programs; a cell that ends its process has an error, and the others are asked for again."""
    cells = [(program.name, *cell) for program in group for cell in program.cells]
    names = tuple(program.name for program in group)
    done: list[tuple[str, str, str]] = []
    while len(done) < len(cells):
        request = Request(names, plan.backend, plan.against, plan.rounds, plan.seed, tuple(done))
        answer = worker.ask(
            "assay.harness.bench.operators_worker",
            dataclasses.asdict(request),
            plan.timeout_s,
            {"OMP_NUM_THREADS": "1"},
        )
        for line in answer.lines:
            yield row_of(line)
            done.append((line["program"], line["dtype"], line["layout"]))
        done = list(dict.fromkeys(done))
        if len(done) < len(cells):
            lost = next(cell for cell in cells if cell not in done)
            yield Row(*lost, against=plan.against[0], error=": ".join(answer.failure or ("crash", "no answer")))
            done.append(lost)


def row_of(line: Mapping[str, Any]) -> Row:
    spread = line.get("spread")
    return Row(**{**line, "spread": tuple(spread) if spread else None})


def group_line(group: Sequence[Program], rows: Sequence[Row]) -> Text:
    """One line on a few programs: how many rows, and those above the bar."""
    slow = [f"{row.program}.{row.dtype}.{row.layout} {ratio_text(row)}" for row in rows if row.is_slow]
    return Text(f"{group[0].name} to {group[-1].name}: {len(rows)} rows; {', '.join(slow) or 'none above the bar'}")


def ratio_text(row: Row) -> str:
    return row.error or (UNKNOWN if row.ratio is None else f"{row.ratio:.2f}")


def document(done: Operators, environment: Mapping[str, Any]) -> dict[str, Any]:
    """The JSON report as plain data."""
    return finite(  # type: ignore[no-any-return]
        {
            "schema": SCHEMA,
            "environment": dict(environment),
            "interrupted": done.interrupted,
            "most": MOST,
            "rows": [dataclasses.asdict(row) for row in done.rows],
            "slow": [dataclasses.asdict(row) | {"passes": said.passes} for row, said in done.slow],
        }
    )


def show(console: Console, done: Operators) -> None:
    """What is above the bar, and how many rows there are of each kind."""
    table = progress.table(("program", "dtype", "layout", "against", "known"), ("us", "against us", "ratio", "spread"))
    for row, said in done.slow:
        cells = (row.program, row.dtype, row.layout, row.against, "; ".join(said.notes))
        table.add_row(*cells, *map(microseconds, (row.ours_us, row.against_us)), ratio_text(row), quartiles_text(row))
    if done.slow:
        console.print(table)
    for against in done.plan.against:
        console.print(totals_text(against, [row for row in done.rows if row.against == against]), soft_wrap=True)
    if done.interrupted:
        console.print("Interrupted; only the programs that had ended are reported.", style="bold yellow")


def totals_text(against: str, rows: Sequence[Row]) -> Text:
    """How many rows against one other there are, above the bar, too short to count, and of calls that do not exist."""
    above = sum(row.ratio is None or row.ratio > MOST for row in rows if not row.refused)
    refused = sum(bool(row.refused) for row in rows)
    short = sum(not row.counts and not row.refused for row in rows) if against == EAGER else 0
    slow = sum(row.is_slow for row in rows) if against == EAGER else above
    return Text(
        f"Against {against}: {len(rows)} rows, {slow} above {MOST} times its time, {short} below {LEAST_US:g} us "
        f"and not counted, {refused} of no such call"
    )


def microseconds(value: float | None) -> str:
    return UNKNOWN if value is None else f"{value:.1f}"


def quartiles_text(row: Row) -> str:
    return "" if row.spread is None else f"{row.spread[0]:.2f} to {row.spread[1]:.2f}"
