"""How long the default cut of a joint graph takes, and how that grows with its nodes: `assay bench partition`.

Each function is recorded with its gradients and rewritten as for a compile. Only the cut is timed, from the joint graph
to forward and backward. The time is processor time, the least of a few cuts. A program passes if its exponent and its
time at `AT` nodes are within their bars. The exponent is the slope of log(time) over log(nodes).

    JSON: {"schema": 1, "environment", "interrupted", "bars", "rows", "growths"}
"""

from __future__ import annotations

import dataclasses
import importlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.text import Text
from torch import Tensor

from assay.harness.bench.compile_time.scaling import MOST, exponent_of
from assay.harness.processes import worker
from assay.harness.report import progress
from assay.harness.report.documents import SCHEMA, finite

PROGRAMS = "assay.suites.benchmarks.partition"
AT = 10_000
"""The number of joint nodes at which a cut may take `MOST_S`."""
MOST_S = 1.0

Made = tuple[Callable[..., Any], tuple[Tensor, ...]]


@dataclass(frozen=True, slots=True)
class Growing:
    """A function of any size: `make(nodes)` gives one whose joint graph has about so many nodes, and its inputs."""

    name: str
    make: Callable[[int], Made]
    sizes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Row:
    """One joint graph: its nodes, the seconds that its cut takes, and how many values forward saves and backward
    computes again. `record_s`: the seconds until there is a joint graph."""

    program: str
    size: int
    nodes: int | None = None
    seconds: float | None = None
    record_s: float | None = None
    saved: int | None = None
    again: int | None = None
    error: str = ""


@dataclass(frozen=True, slots=True)
class Growth:
    """The exponent of a program's cut, and its seconds at `AT` nodes, by the row that is nearest to that; None where
    too few cuts ended."""

    program: str
    exponent: float | None
    at_s: float | None
    is_complete: bool

    @property
    def passes(self) -> bool:
        if not self.is_complete or self.exponent is None or self.at_s is None:
            return False
        return self.exponent <= MOST and self.at_s < MOST_S


@dataclass(frozen=True, slots=True)
class Partitioning:
    """What a run came to."""

    rows: tuple[Row, ...]
    interrupted: bool = False

    @property
    def growths(self) -> tuple[Growth, ...]:
        names = dict.fromkeys(row.program for row in self.rows)
        return tuple(growth_of([row for row in self.rows if row.program == name]) for name in names)

    @property
    def passes(self) -> bool:
        return bool(self.rows) and all(growth.passes for growth in self.growths)


def programs() -> dict[str, Growing]:
    """The programs of the suite, by name."""
    return {program.name: program for program in importlib.import_module(PROGRAMS).PROGRAMS}


def growth_of(rows: Sequence[Row]) -> Growth:
    """The growth over the rows of one program."""
    ended = [(row.nodes, row.seconds) for row in rows if row.nodes and row.seconds]
    nearest = min(ended, key=lambda point: abs(math.log(point[0] / AT)), default=None)
    at_s = nearest[1] * AT / nearest[0] if nearest is not None else None
    return Growth(rows[0].program, exponent_of(ended), at_s, len(ended) == len(rows))


def run_partitioning(console: Console, text: str, timeout_s: float, shrink: int = 1) -> Partitioning:
    """Measures the programs whose names contain the text; what has ended when the user interrupts is kept. `shrink`
    divides every size, for a quick look."""
    rows: list[Row] = []
    chosen = [program for program in programs().values() if text in program.name]
    with progress.progress(console, len(chosen)) as shown:
        try:
            for program in chosen:
                shown.begin(program.name)
                rows.extend(found := measured(program, timeout_s, shrink))
                shown.end(line_of(found))
        except KeyboardInterrupt:
            return Partitioning(tuple(rows), interrupted=True)
    return Partitioning(tuple(rows))


def measured(program: Growing, timeout_s: float, shrink: int = 1) -> tuple[Row, ...]:
    """The rows of one program, in a process of its own; those that did not end say so."""
    sizes = [size // shrink for size in program.sizes]
    answer = worker.ask(
        "assay.harness.bench.compile_time.partition_worker", {"program": program.name, "sizes": sizes}, timeout_s, {}
    )
    error = ": ".join(answer.failure or ())
    missing = (Row(program.name, size, error=error or "no answer") for size in sizes[len(answer.lines) :])
    return (*(Row(program.name, **line) for line in answer.lines), *missing)


def document(done: Partitioning, environment: Mapping[str, Any]) -> dict[str, Any]:
    """The JSON report as plain data."""
    return finite(
        {
            "schema": SCHEMA,
            "environment": dict(environment),
            "interrupted": done.interrupted,
            "bars": {"nodes": AT, "seconds": MOST_S, "exponent": MOST},
            "rows": [dataclasses.asdict(row) for row in done.rows],
            "growths": [{**dataclasses.asdict(growth), "passes": growth.passes} for growth in done.growths],
        }
    )


def line_of(rows: Sequence[Row]) -> Text:
    """`chain  504: 0.012 s, 1008: 0.024 s; ...`, by the number of nodes."""
    times = ", ".join(
        f"{row.nodes}: {row.seconds:.3f} s" if row.seconds else f"{row.size}: {row.error}" for row in rows
    )
    return Text(f"{rows[0].program}  {times}")


def show(console: Console, done: Partitioning) -> None:
    """Seconds by nodes, and each bar beside what was found."""
    for growth in done.growths:
        console.print(line_of([row for row in done.rows if row.program == growth.program]), soft_wrap=True)
        exponent = "?" if growth.exponent is None else f"{growth.exponent:.2f}"
        at = "?" if growth.at_s is None else f"{growth.at_s:.2f}"
        bars = f"grows by n^{exponent} (bar {MOST}); {AT} nodes {at} s (bar {MOST_S:g} s)"
        console.print(f"    {bars}: {'within' if growth.passes else 'NOT within'} the bars", soft_wrap=True)
    if done.interrupted:
        console.print("Interrupted; only the programs that had ended are reported.", style="bold yellow")
