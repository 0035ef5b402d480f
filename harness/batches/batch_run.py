"""Runs the batches of a suite in child processes: sharded, resumable, with what a crash or a hang took named.

A *unit* is a batch on a backend. The units of a group run in one child, one after the other. A child that dies, or is
silent for too long, ends nothing but itself. Its unit runs again in a fresh child with fewer samples together, until
the faulty sample is alone and the others have their verdicts.

The result of a unit is appended to the store, as one line of JSON, before the next unit begins. A run that is given a
store runs only what is not in it.
"""

from __future__ import annotations

import json
import queue
import threading
import time
import zlib
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from assay.harness.batches.batch import TOGETHER, Tally
from assay.harness.batches.sample import Batch, key_of
from assay.harness.outcome import Result
from assay.harness.processes.child import Child, Lost, last_words, sharing

UNITS = 400
"""How many units one child runs: kernels that it loaded are never unloaded."""
START_S = 180.0
TIMEOUT_S = 300.0
Event = dict[str, Any]


class StoreError(ValueError):
    """A store that belongs to another run; the message says in what they differ."""


@dataclass(frozen=True, slots=True)
class Unit:
    """A batch on a backend."""

    batch: Batch
    backend: str

    @property
    def key(self) -> str:
        return f"{key_of(self.batch)} {self.backend}"


@dataclass(frozen=True, slots=True)
class Shard:
    """Part `number` of `count`, from 1 on: of the groups, by a hash of their names."""

    number: int = 1
    count: int = 1

    def has(self, group: str) -> bool:
        return zlib.crc32(group.encode()) % self.count == self.number - 1


@dataclass(frozen=True, slots=True)
class Settings:
    """How to run. Units: seconds, that one compile of samples and what is compared after it may take."""

    module: str
    suite: str
    seed: int = 0
    jobs: int = 1
    timeout_s: float = TIMEOUT_S
    device: str = "cpu"


@dataclass(frozen=True, slots=True)
class Ended:
    """A unit that has ended, at which commit of the project where that is known."""

    unit: Unit
    tally: Tally
    seconds: float
    commit: str = ""


def run_units(units: Sequence[Unit], settings: Settings) -> Iterator[Ended]:
    """Runs the units, `jobs` groups at a time, and gives each as it ends; samples that cannot be made are a crash.

    Raises: the error of a thread that feeds a worker, after the other threads have ended.
    """
    inbox: queue.Queue[Ended | Exception | None] = queue.Queue()
    waiting = deque(_by_group(units))
    lines = [_Line(settings, waiting, inbox) for _ in range(settings.jobs)]
    for line in lines:
        line.start()
    running = len(lines)
    try:
        while running:
            got = inbox.get()
            if isinstance(got, Exception):
                raise got
            if got is None:
                running -= 1
            else:
                yield got
    finally:
        for line in lines:
            line.stopped.set()
        for line in lines:
            line.join()


def _by_group(units: Iterable[Unit]) -> list[list[Unit]]:
    groups: dict[str, list[Unit]] = {}
    for unit in units:
        groups.setdefault(unit.batch.group, []).append(unit)
    return list(groups.values())


class _Line(threading.Thread):
    """Takes groups as they come and runs their units in a child at a time."""

    def __init__(
        self, settings: Settings, waiting: deque[list[Unit]], inbox: queue.Queue[Ended | Exception | None]
    ) -> None:
        super().__init__(daemon=True)
        self.stopped = threading.Event()
        self._settings, self._waiting, self._inbox = settings, waiting, inbox
        self._worker: _Worker | None = None

    def run(self) -> None:
        try:
            while not self.stopped.is_set() and self._waiting:
                for unit in self._waiting.popleft():
                    if not self.stopped.is_set():
                        self._inbox.put(self._ended(unit))
        except Exception as error:
            self._inbox.put(error)
        finally:
            self._end_worker()
            self._inbox.put(None)

    def _ended(self, unit: Unit) -> Ended:
        began, lost, together = time.monotonic(), list[Result](), TOGETHER
        while True:
            excluded = [_sample_of(result) for result in lost]
            event = self._ask(unit, together, excluded)
            if event["event"] == "error":
                tally = Tally()
                tally.judged(_unmade(unit, event["detail"], self._settings.suite))
                return Ended(unit, tally, time.monotonic() - began)
            if event["event"] == "end":
                tally = Tally.read(event["tally"])
                for result in lost:
                    tally.judged(result)
                return Ended(unit, tally, time.monotonic() - began)
            self._end_worker()
            if not event["samples"]:
                tally = Tally()
                tally.judged(_unmade(unit, f"making the samples: {event['detail']}", self._settings.suite, "no-oracle"))
                return Ended(unit, tally, time.monotonic() - began)
            if len(event["samples"]) > 1:
                together = max(1, len(event["samples"]) // 4)
            else:
                lost.append(_lost(unit, event, self._settings.suite))

    def _ask(self, unit: Unit, together: int, excluded: Sequence[str]) -> Event:
        """Runs a unit in the child; the event that ended it, or that it was lost with what was running."""
        if self._worker is None or self._worker.units >= UNITS:
            self._end_worker()
            self._worker = _Worker(self._settings, self.stopped)
        request = {"unit": key_of(unit.batch), "backend": unit.backend, "together": together, "excluded": excluded}
        return self._worker.asked(request)

    def _end_worker(self) -> None:
        if self._worker is not None:
            self._worker.child.end()
            self._worker = None


def _sample_of(result: Result) -> str:
    return result.case.partition("[")[2].removesuffix("]")


def _unmade(unit: Unit, detail: str, suite: str, verdict: str = "crash") -> Result:
    """The row of a batch whose samples could not be made. They are made with eager alone."""
    return Result(f"{suite}.{unit.batch.name}[*]", unit.batch.mode, unit.backend, verdict, detail=detail)


def _lost(unit: Unit, event: Event, suite: str) -> Result:
    case = f"{suite}.{unit.batch.name}[{event['samples'][0]}]"
    return Result(case, unit.batch.mode, unit.backend, event["verdict"], detail=event["detail"])


@dataclass(slots=True)
class _Worker:
    """A child that runs units."""

    settings: Settings
    stopped: threading.Event
    units: int = 0
    child: Child = field(init=False)
    samples: list[str] = field(default_factory=list, init=False)

    def __post_init__(self) -> None:
        given = {name: getattr(self.settings, name) for name in ("module", "suite", "seed", "device")}
        self.child = Child(
            "assay.harness.batches.batch_worker", json.dumps(given), environment=sharing(), speaks=True, listens=True
        )

    def asked(self, request: dict[str, Any]) -> Event:
        self.samples = []
        if self.units == 0:
            first = self._next(START_S)
            if first["event"] != "alive":
                raise RuntimeError(f"a process for batches did not start: {first['detail']}")
        self.units += 1
        self.child.tell(json.dumps(request))
        while (event := self._next(self.settings.timeout_s))["event"] == "running":
            self.samples = event["samples"]
        return event

    def _next(self, limit_s: float) -> Event:
        """The next event; `lost`, with its verdict, where the process says nothing more."""
        try:
            return json.loads(self.child.line(limit_s, self.stopped.is_set))  # type: ignore[no-any-return]
        except Lost as lost:
            if lost.verdict == "stopped":
                return {"event": "error", "detail": lost.told}
            detail = f"{lost.told}\n{last_words(self.child.said())}"
            return {"event": "lost", "verdict": lost.verdict, "samples": self.samples, "detail": detail}


@dataclass(slots=True)
class Store:
    """The units that have ended, in a file: one line of what the run was asked, then one line a unit."""

    path: Path
    asked: dict[str, Any]

    def read(self, units: Sequence[Unit]) -> list[Ended]:
        """What the file holds of the units. A last line that a kill cut short counts as not there.

        Raises: StoreError for a file of a run with another seed or torch.
        """
        if not self.path.is_file() or not (lines := self.path.read_text().splitlines()):
            self.path.write_text(json.dumps(self.asked) + "\n")
            return []
        if (asked := json.loads(lines[0])) != self.asked:
            raise StoreError(f"{self.path} is of another run: it was asked {asked}, this one {self.asked}")
        by_key = {unit.key: unit for unit in units}
        found = [data for line in lines[1:] if (data := _whole(line)) is not None and data["unit"] in by_key]
        self.path.write_text("\n".join(line for line in lines if _whole(line) is not None) + "\n")
        return [
            Ended(by_key[data["unit"]], Tally.read(data["tally"]), data["seconds"], data.get("commit", ""))
            for data in found
        ]

    def add(self, ended: Ended) -> None:
        data = {"unit": ended.unit.key, "seconds": ended.seconds, "commit": ended.commit, "tally": ended.tally.data()}
        with self.path.open("a") as file:
            file.write(json.dumps(data) + "\n")


def _whole(line: str) -> dict[str, Any] | None:
    try:
        return json.loads(line)  # type: ignore[no-any-return]
    except json.JSONDecodeError:
        return None


def plan(
    batches: Iterable[Batch], backends: Sequence[str], text: str, modes: Sequence[str], shapes: Sequence[str],
    shard: Shard,
) -> list[Unit]:  # fmt: skip
    """The units that a run asks for. Of `suite.name`, `text` is a part."""
    return [
        Unit(batch, f"{backend},dynamic" if kind == "dynamic" else backend)
        for batch in batches
        if text in batch.name and batch.mode in modes and shard.has(batch.group)
        for backend in backends
        for kind in shapes
        if kind in batch.shapes
    ]
