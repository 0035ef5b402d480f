"""How compile time grows with the number of nodes: `assay bench scaling`.

Each program is compiled at several sizes, each in a fresh process with empty caches, without Dynamo: only the backend
is measured. The exponent is the slope of log(time) over log(size): 1 is linear, 2 quadratic. Its time is that of the
processors (the backend's own process and the compilers that it waited for), which no other process lengthens.
Each backend is measured with numbers for sizes, and as NAME,dynamic with symbols, on smaller programs.

    JSON: {"schema": 1, "environment", "interrupted", "rows", "growths"}
"""

from __future__ import annotations

import dataclasses
import importlib
import math
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from rich.console import Console
from rich.text import Text
from torch import fx

from assay.harness.backends.registry import is_given_shapes
from assay.harness.processes import worker
from assay.harness.report import progress
from assay.harness.report.documents import SCHEMA, finite, seconds

WORKER = "assay.harness.bench.compile_time.scaling_worker"
PROGRAMS = "assay.suites.benchmarks.scaling"
MOST = 1.2
"""The largest exponent that still counts as linear."""
DYNAMIC = ",dynamic"
"""What a backend's name ends with where sizes are symbols."""
SMALLER = 8
"""By how much programs with symbolic sizes are smaller."""
LEAST_SHARE = 0.05
"""The share of the largest compile from which on a stage's own growth is told."""

Inputs = tuple[torch.Tensor, ...]


@dataclass(frozen=True, slots=True)
class Growing:
    """A program of any size: `make(size)` gives a graph and its inputs."""

    name: str
    make: Callable[[int], tuple[fx.GraphModule, Inputs]]
    sizes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Request:
    """One compile to measure: forward, or in mode `train` forward and backward."""

    program: str
    size: int
    mode: str
    backend: str


@dataclass(frozen=True, slots=True)
class Row:
    """One compile, its first call included: `compile_s` by the clock, `cpu_s` of the processors. `stages` are the
    seconds of our own compiler's stages, by name."""

    program: str
    mode: str
    backend: str
    size: int
    nodes: int | None
    compile_s: float | None
    cpu_s: float | None
    stages: Mapping[str, float]
    error: str = ""


@dataclass(frozen=True, slots=True)
class Growth:
    """The exponent of a program's compile time under a backend, and of each stage that matters; None where fewer than
    two sizes were compiled."""

    program: str
    mode: str
    backend: str
    exponent: float | None
    stages: Mapping[str, float]
    is_complete: bool


@dataclass(frozen=True, slots=True)
class Plan:
    """What to measure. `shrink` divides every size, for a quick look."""

    backend: str
    against: tuple[str, ...]
    modes: tuple[str, ...]
    text: str
    timeout_s: float
    shrink: int = 1

    @property
    def own(self) -> tuple[str, ...]:
        """The backend with numbers and with symbols for sizes."""
        return in_both(self.backend)

    @property
    def backends(self) -> tuple[str, ...]:
        return *self.own, *(name for rival in self.against for name in in_both(rival))

    def sizes(self, program: Growing, backend: str) -> tuple[int, ...]:
        """The sizes at which a program is compiled."""
        divisor = self.shrink * (SMALLER if is_given_shapes(backend) else 1)
        return tuple(max(size // divisor, 8) for size in program.sizes)


@dataclass(frozen=True, slots=True)
class Scaling:
    """What a run came to; it passes if every compile of the backend itself ended and grew no faster than `MOST`."""

    plan: Plan
    rows: tuple[Row, ...]
    interrupted: bool

    @property
    def growths(self) -> tuple[Growth, ...]:
        keys = dict.fromkeys((row.program, row.mode, row.backend) for row in self.rows)
        return tuple(growth_of([r for r in self.rows if (r.program, r.mode, r.backend) == key]) for key in keys)

    @property
    def passes(self) -> bool:
        return all(is_linear(growth) for growth in self.growths if growth.backend in self.plan.own)


def in_both(backend: str) -> tuple[str, ...]:
    """A backend with numbers and with symbols for sizes; as it is where its name says which."""
    return (backend,) if is_given_shapes(backend) else (backend, backend + DYNAMIC)


def programs() -> dict[str, Growing]:
    """The programs of the suite, by name."""
    return {program.name: program for program in importlib.import_module(PROGRAMS).PROGRAMS}


def is_linear(growth: Growth) -> bool:
    return growth.is_complete and growth.exponent is not None and growth.exponent <= MOST


def growth_of(rows: Sequence[Row]) -> Growth:
    """The growth over the rows of one program under one backend."""
    first, ended = rows[0], [row for row in rows if row.compile_s]
    points = [(row.size, row.cpu_s) for row in ended]
    largest = ended[-1].stages if ended else {}
    told = [name for name, spent in largest.items() if spent >= LEAST_SHARE * sum(largest.values())]
    stages = {name: exponent_of([(row.size, row.stages.get(name, 0.0)) for row in ended]) for name in told}
    known = {name: exponent for name, exponent in stages.items() if exponent is not None}
    is_complete = len(ended) == len(rows)
    return Growth(first.program, first.mode, first.backend, exponent_of(points), known, is_complete)


def exponent_of(points: Sequence[tuple[int, float | None]]) -> float | None:
    """The slope of log(seconds) over log(size), by least squares; None of fewer than two positive points."""
    logs = [(math.log(size), math.log(spent)) for size, spent in points if spent]
    if len(logs) < 2:
        return None
    return statistics.linear_regression(*zip(*logs, strict=True)).slope


def run_scaling(console: Console, plan: Plan) -> Scaling:
    """Measures every program; what has ended when the user interrupts is kept."""
    rows: list[Row] = []
    chosen = [program for program in programs().values() if plan.text in program.name]
    pieces = sum(len(program.sizes) for program in chosen) * len(plan.modes) * len(plan.backends)
    interrupted = False
    with progress.progress(console, pieces) as shown:
        try:
            for program in chosen:
                for mode in plan.modes:
                    for backend in plan.backends:
                        rows.extend(_grow(shown, program, mode, backend, plan))
        except KeyboardInterrupt:
            interrupted = True
    return Scaling(plan, tuple(rows), interrupted)


def _grow(shown: progress.Progress, program: Growing, mode: str, backend: str, plan: Plan) -> Iterator[Row]:
    """The sizes of one program in order; those above one that did not end are not tried."""
    failed = ""
    for size in plan.sizes(program, backend):
        request = Request(program.name, size, mode, backend)
        if failed:
            shown.skip()
            yield _row(request, {}, failed)
            continue
        shown.begin(f"{program.name} {size} {mode} {backend}")
        row = measured(request, plan.timeout_s)
        shown.end(Text(f"{program.name} {size} {mode} {backend}: {row.error or seconds(row.compile_s) + ' s'}"))
        failed = f"not tried: {size} nodes did not end" if row.error else ""
        yield row


def measured(request: Request, timeout_s: float) -> Row:
    """One compile in a process of its own."""
    with worker.cold_environment() as extra:
        answer = worker.ask(WORKER, dataclasses.asdict(request), timeout_s, extra)
    said = answer.lines[0] if answer.lines else {}
    return _row(request, said, "" if said else ": ".join(answer.failure or ("crash", "no answer")))


def _row(request: Request, said: Mapping[str, Any], error: str) -> Row:
    return Row(
        request.program, request.mode, request.backend, request.size,
        said.get("nodes"), said.get("compile_s"), said.get("cpu_s"), said.get("stages", {}), said.get("error") or error,
    )  # fmt: skip


def document(done: Scaling, environment: Mapping[str, Any]) -> dict[str, Any]:
    """The JSON report as plain data."""
    return finite(
        {
            "schema": SCHEMA,
            "environment": dict(environment),
            "interrupted": done.interrupted,
            "rows": [dataclasses.asdict(row) for row in done.rows],
            "growths": [dataclasses.asdict(growth) for growth in done.growths],
        }
    )


def show(console: Console, done: Scaling) -> None:
    """Seconds by size, and how they grow: first in all, then by stage."""
    for growth in done.growths:
        rows = [r for r in done.rows if (r.program, r.mode, r.backend) == (growth.program, growth.mode, growth.backend)]
        times = ", ".join(f"{row.size}: {row.error or seconds(row.cpu_s) + ' s'}" for row in rows)
        console.print(Text(f"{growth.program} {growth.mode} {growth.backend}  {times}"), soft_wrap=True)
        console.print(Text(f"    grows by n^{_power(growth.exponent)}{_stages(rows, growth)}"), soft_wrap=True)
    if done.interrupted:
        console.print("Interrupted; only the compiles that had ended are reported.", style="bold yellow")


def _stages(rows: Sequence[Row], growth: Growth) -> str:
    largest = [row for row in rows if row.compile_s]
    told = (f"{name} {largest[-1].stages[name]:.2f} s n^{power:.2f}" for name, power in growth.stages.items())
    return f"; {', '.join(told)}" if growth.stages else ""


def _power(exponent: float | None) -> str:
    return "?" if exponent is None else f"{exponent:.2f}"
