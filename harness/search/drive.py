"""Runs the state machine of `assay.suites.programs` on a backend, outside pytest: `assay run machine`.

Runs are drawn in chunks, each with a seed of its own, so that a failure ends its chunk alone. Shards are chunks that
are dealt out to child processes. Each distinct failure is made short and stored as a script. A child that dies takes
the chunk that it was at with it, which is named and counted as a failure; another goes on after it.

An interrupt ends the runs. What had ended by then is said and written, as after every chunk:

    {"schema": 1, "interrupted": false, "machine": [{"plan": {...}, "runs", "steps", "failures": {key: {...}}, ...}]}
"""

from __future__ import annotations

import dataclasses
import importlib
import json
import logging
import signal
import sys
import tempfile
import time
import warnings
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click
import torch

from assay.harness.backends.registry import resolve
from assay.harness.option_groups import group
from assay.harness.outcome import Difference
from assay.harness.processes.child import Child, ending
from assay.harness.report import documents as report
from assay.harness.search.script import Failure, failure_from, reduced, rendered, signature_of
from assay.harness.search.twin import Diverged, Twin

CHUNK = 8
"""Runs a search: with more, Hypothesis makes them out of earlier ones."""
STORE = Path(".assay/machine")
MACHINE = "assay.suites.programs.machine"
INTERRUPTED = 130


@dataclass(frozen=True, slots=True)
class Driving:
    """How the machine is driven. `jobs`: processes at a time, which every other suite has as well; None where nobody
    has said."""

    runs: int
    steps: int
    jobs: int | None
    store: str
    strict: bool
    subjects: str

    @property
    def processes(self) -> int:
        """How many of them a suite takes that makes its own rows."""
        return self.jobs or 1


OPTIONS = group(
    "driving",
    Driving,
    click.option("--runs", type=click.IntRange(min=1), default=100, show_default=True, help="machine: runs."),
    click.option("--steps", type=click.IntRange(min=1), default=20, show_default=True, help="machine: steps a run."),
    click.option(
        "--jobs",
        type=click.IntRange(min=1),
        help="Processes at a time. Default: one a core, at most 4, for cases; 1 for machine, programs, ops, gradients.",
    ),
    click.option(
        "--store", default=str(STORE), show_default=True, metavar="DIR", help="machine, programs: failing scripts."
    ),
    click.option("--strict", is_flag=True, help="machine: steer around no known limit."),
    click.option("--subjects", default="", metavar="NAME[,NAME]", help="machine: only these callables."),
)
"""The options of `assay run` that only the machine reads."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What to run: `runs` runs of `steps` steps from `seed` on, and where failing scripts are put."""

    backend: str
    runs: int = 100
    steps: int = 20
    seed: int = 0
    store: str = str(STORE)
    jobs: int = 1
    subjects: str = ""
    strict: bool = False

    @staticmethod
    def of(backend: str, seed: int, driving: Driving) -> Plan:
        """The plan of a backend, as the command line asks for it."""
        return Plan(backend, seed=seed, **dataclasses.asdict(driving) | {"jobs": driving.processes})

    def chunks(self) -> list[tuple[int, int]]:
        """Seed and number of runs of each chunk."""
        return [(self.seed + at // CHUNK, min(CHUNK, self.runs - at)) for at in range(0, self.runs, CHUNK)]


@dataclass(slots=True)
class Tally:
    """What the runs came to."""

    runs: int = 0
    steps: int = 0
    compiles: int = 0
    cut_short: int = 0
    seconds: float = 0.0
    subjects: Counter[str] = field(default_factory=Counter)
    rules: Counter[str] = field(default_factory=Counter)
    failures: dict[str, dict[str, Any]] = field(default_factory=dict)

    def as_data(self) -> dict[str, Any]:
        """Plain data, for a report and for a parent process."""
        plain = {each.name: getattr(self, each.name) for each in dataclasses.fields(self)}
        return plain | {"subjects": dict(self.subjects), "rules": dict(self.rules)}

    def add(self, other: Tally) -> None:
        for name in ("runs", "steps", "compiles", "cut_short"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.subjects.update(other.subjects)
        self.rules.update(other.rules)
        for key, failure in other.failures.items():
            known = self.failures.setdefault(key, {**failure, "count": 0})
            known["count"] += failure["count"]


class Drive:
    """The chunks of one process. `chunks` are those that it has not begun."""

    def __init__(self, plan: Plan, chunks: Sequence[tuple[int, int]] | None = None) -> None:
        self.plan, self.tally = plan, Tally()
        self.chunks = deque(plan.chunks() if chunks is None else chunks)
        self.backend = resolve(plan.backend)
        self._machine: Any = importlib.import_module(MACHINE)
        self._check: Callable[[], None] = lambda: None

    def run_chunk(self, check: Callable[[], None] = lambda: None) -> None:
        """Runs the next chunk. The tally has every run that ended, should it be interrupted. `check` is called when a
        run has ended, and may raise."""
        start, self._check = time.perf_counter(), check
        try:
            self._chunk(*self.chunks.popleft())
        finally:
            self.tally.seconds += time.perf_counter() - start

    def _chunk(self, seed: int, runs: int) -> None:
        """Up to `runs` runs; a failure ends the drawing, not what is left of the plan."""
        first: list[Failure] = []

        def failed(twin: Twin, diverged: Diverged) -> None:
            first.append(failure_from(twin, diverged))

        left = runs
        while left > 0:
            before = self.tally.runs
            wanted = dataclasses.replace(self.plan, seed=seed, runs=left)
            self._machine.search(self.backend, wanted, failed, self._ended)
            left -= max(1, self.tally.runs - before)
            seed += 1_000_003  # the same seed would draw the same failing run again
            for failure in first:
                self._keep(failure)
            first.clear()

    def _ended(self, twin: Twin, rules: Counter[str]) -> None:
        self.tally.runs += 1
        self.tally.steps += len(twin.steps)
        self.tally.compiles += twin.compiles
        self.tally.cut_short += twin.is_over
        self.tally.subjects[twin.subject.name] += 1
        self.tally.rules.update(rules)
        self._check()

    def _keep(self, failure: Failure) -> None:
        """Counts a failure; one that is new is made short and stored."""
        key = " ".join(signature_of(failure.subject, failure.differences))
        if key not in self.tally.failures:
            short = reduced(failure, self.backend)
            path = stored(short, self.plan)
            said = [dataclasses.asdict(each) for each in short.differences]
            self.tally.failures[key] = {"count": 0, "script": str(path), "steps": len(short.steps), "differences": said}
            click.echo(f"{key}\n  {short.differences[0].detail}\n  {len(short.steps)} steps: {path}")
        self.tally.failures[key]["count"] += 1


def stored(failure: Failure, plan: Plan) -> Path:
    """Writes the script under the store; its name is the signature and the backend."""
    folder = Path(plan.store)
    folder.mkdir(parents=True, exist_ok=True)
    words = "_".join("".join(c if c.isalnum() else "_" for c in part) for part in failure.signature)
    path = folder / f"{words.strip('_')}__{plan.backend.partition(',')[0].replace(':', '_').replace('.', '_')}.py"
    path.write_text(rendered(failure, plan.backend))
    return path


class Interrupts:
    """Interrupts while a context is open. One whose KeyboardInterrupt is lost is raised again by `check`: what a
    callback of the garbage collector raises is printed, and the program goes on."""

    def __init__(self) -> None:
        self._has_come = False
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Interrupts:
        for number in (signal.SIGINT, signal.SIGTERM):
            if signal.getsignal(number) is signal.default_int_handler:
                self._before[number] = signal.signal(number, self._come)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _come(self, number: int, frame: object) -> None:
        self._has_come = True
        raise KeyboardInterrupt

    def check(self) -> None:
        """Raises: KeyboardInterrupt if one has come."""
        if self._has_come:
            raise KeyboardInterrupt


def quietly(drives: Sequence[Drive], after: Callable[[], None] = lambda: None) -> None:
    """The chunks in this process, one of each drive in turn, without the warnings and logs of programs that are meant
    to go wrong. `after` is called when a chunk has ended."""
    logging.disable(logging.CRITICAL)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with Interrupts() as interrupts:
                while left := [drive for drive in drives if drive.chunks]:
                    for drive in left:
                        drive.run_chunk(interrupts.check)
                        after()
    finally:
        torch.set_num_threads(threads)
        logging.disable(logging.NOTSET)


Chunks = list[tuple[int, int]]


class Shards:
    """The chunks dealt out to `plan.jobs` child processes. A chunk that a child dies of is a failure."""

    def __init__(self, plan: Plan) -> None:
        self.plan, self.tally = plan, Tally()

    def run(self, after: Callable[[], None] = lambda: None) -> None:
        """Runs them all. The tally has every chunk that ended, should it be interrupted."""
        start = time.perf_counter()
        with tempfile.TemporaryDirectory(prefix="assay-") as folder:
            dealt = filter(None, (self.plan.chunks()[job :: self.plan.jobs] for job in range(self.plan.jobs)))
            shards = [Shard(self.plan, chunks, Path(folder) / f"{job}.json") for job, chunks in enumerate(dealt)]
            try:
                while any(shard.chunks for shard in shards):
                    time.sleep(POLL_S)
                    for shard in shards:
                        shard.go_on()
                    if self._count(shards, time.perf_counter() - start):
                        after()
            finally:
                for shard in shards:
                    shard.end()
                self._count(shards, time.perf_counter() - start)

    def _count(self, shards: Sequence[Shard], seconds: float) -> bool:
        """Sums up what the shards have come to; whether that is more than before."""
        before, self.tally = self.tally, Tally(seconds=seconds)
        for shard in shards:
            self.tally.add(shard.tally)
        return self.tally.runs > before.runs


POLL_S = 0.1


class Shard:
    """Chunks that one child after another runs; `row` is where it writes what is done."""

    def __init__(self, plan: Plan, chunks: Chunks, row: Path) -> None:
        self.plan, self.chunks, self.row = plan, chunks, row
        self._counted = Tally()
        self._child = self._started()

    @property
    def tally(self) -> Tally:
        """What the chunks have come to that have ended."""
        total = Tally()
        total.add(self._counted)
        total.add(self._written()[1])
        return total

    def go_on(self) -> None:
        """Where the child has ended before its chunks: counts the one that it died of, and starts another child."""
        if not self.chunks or (status := self._child.status) is None:
            return
        done, written = self._written()
        self._counted.add(written)
        self.row.unlink(missing_ok=True)
        self.chunks = self.chunks[done:]
        if self.chunks:
            lost, self.chunks = self.chunks[0], self.chunks[1:]
            self._counted.add(died(self.plan, lost, status))
        if self.chunks:
            self.end()
            self._child = self._started()

    def _written(self) -> tuple[int, Tally]:
        """How many chunks the child has done, and what they came to."""
        if not self.row.is_file():
            return 0, Tally()
        written = json.loads(self.row.read_text())
        return written["done"], read_tally(written["tally"])

    def end(self) -> None:
        """Ends the child: it has a session of its own, which no interrupt of this process reaches."""
        self._child.end()

    def _started(self) -> Child:
        request = dataclasses.asdict(self.plan) | {"chunks": self.chunks, "row": str(self.row)}
        environment = {"OMP_NUM_THREADS": "1"}
        return Child("assay.harness.search.drive", json.dumps(request), environment=environment, is_shown=True)


def died(plan: Plan, chunk: tuple[int, int], status: int) -> Tally:
    """What is counted for a chunk that took its process with it: one failure, with the command that shows it."""
    seed, runs = chunk
    again = f"assay run machine --backend {plan.backend} --runs {runs} --steps {plan.steps} --seed {seed}"
    again += f" --subjects {plan.subjects}" * bool(plan.subjects) + " --strict" * plan.strict
    detail = f"{ending(status)} in the {runs} runs of seed {seed}: {again}"
    click.echo(f"crash of seed {seed}\n  {detail}", err=True)
    difference = dataclasses.asdict(Difference("crash", "process", detail))
    failure = {"count": 1, "script": "", "steps": 0, "differences": [difference]}
    return Tally(failures={f"crash of seed {seed}": failure})


def read_tally(data: dict[str, Any]) -> Tally:
    counted = {name: Counter(data[name]) for name in ("subjects", "rules")}
    return Tally(**{**data, **counted})


def run_machine(plans: Sequence[Plan], json_path: Path | None) -> int:
    """Runs each plan, says what it came to, writes the report.

    The exit code is 1 where twins differed, and 130 after an interrupt.
    """
    works: list[Drive | Shards] = [Drive(plan) if plan.jobs == 1 else Shards(plan) for plan in plans]
    interrupted = False

    def write_so_far() -> None:
        if json_path is not None and json_path != report.STDOUT:  # should it be killed, it holds these
            report.write_json(json_path, document(works, interrupted=True))

    try:
        quietly([work for work in works if isinstance(work, Drive)], write_so_far)
        for work in works:
            if isinstance(work, Shards):
                work.run(write_so_far)
    except KeyboardInterrupt:
        interrupted = True
    for work in works:
        click.echo(summary(work.plan, work.tally), err=json_path == report.STDOUT)
    if json_path is not None:
        report.write_json(json_path, document(works, interrupted))
    return INTERRUPTED if interrupted else 1 if any(work.tally.failures for work in works) else 0


def document(works: Sequence[Drive | Shards], interrupted: bool) -> dict[str, Any]:
    """The report as plain data."""
    rows = [{"plan": dataclasses.asdict(work.plan)} | work.tally.as_data() for work in works]
    return {"schema": report.SCHEMA, "interrupted": interrupted, "machine": rows}


def summary(plan: Plan, tally: Tally) -> str:
    failing = sum(failure["count"] for failure in tally.failures.values())
    return (
        f"{tally.runs} runs on {plan.backend}: {tally.steps} steps, {tally.compiles} compiles, {tally.seconds:.0f} s "
        f"({tally.seconds / max(1, tally.runs):.2f} s a run), {tally.cut_short} cut short; "
        f"{len(tally.failures)} distinct failures in {failing} runs"
    )


def main(argument: str) -> None:
    """The child: its chunks. What they came to is written whole after each."""
    request = json.loads(argument)
    chunks, row = [(seed, runs) for seed, runs in request.pop("chunks")], Path(request.pop("row"))
    part, drive = row.with_suffix(".part"), Drive(Plan(**request), chunks)

    def write() -> None:
        done = len(chunks) - len(drive.chunks)
        part.write_text(json.dumps({"done": done, "tally": drive.tally.as_data()}))
        part.rename(row)

    quietly([drive], write)


if __name__ == "__main__":
    main(sys.argv[1])
