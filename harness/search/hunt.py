"""Hunts for programs on which a backend differs from eager: generated, run in child processes, made smaller, stored.

The programs of a seed are numbered; a child runs a block of them and says of each when it begins (`hunt_worker`). A
child that dies or is silent for too long is a failure of the program that it was running, and a fresh one goes on
behind it. Children are short-lived, so that nothing that a compiler keeps can grow without bound.
"""

from __future__ import annotations

import dataclasses
import datetime
import json
import queue
import re
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from assay.harness import outcome
from assay.harness.judge import ledger
from assay.harness.judge.ledger import Judgement, Known
from assay.harness.outcome import Result
from assay.harness.processes.child import Child, Lost, last_words, sharing
from assay.harness.search.hunt_worker import AS_MUCH, Request
from assay.harness.search.stored import stored

BLOCK = 400
"""How many programs one child runs."""
TIMEOUT_S = 60.0
START_S = 120.0
"""How long a child may take to import what it needs."""
UNSETTLED = ("reference-unstable", "no-oracle")
"""Verdicts that say nothing against a backend: eager itself does not settle it."""

Event = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Settings:
    """What to hunt with. Units: seconds. `store` is where failing programs are written."""

    generator: str
    examples: int
    seed: int
    backends: tuple[str, ...]
    modes: tuple[str, ...]
    first: int = 0
    jobs: int = 1
    store: Path = Path(".assay/programs")
    timeout_s: float | None = None
    shrink_s: float = 10.0
    shrinks: int = 2
    with_variants: bool = False
    device: str = "cpu"

    def request(self, indices: Sequence[int]) -> Request:
        return Request(
            self.generator, self.seed, tuple(indices), self.backends, self.modes,
            self.shrink_s, self.shrinks, self.with_variants, self.device,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Failure:
    """A program that differs, as small as it was made. `alone` is the verdict of Dynamo with nothing behind it, or
    `as much` if that fails in the same way."""

    index: int
    kind: str
    source: str
    operations: tuple[str, ...]
    alone: str
    is_smallest: bool
    result: Result
    judgement: Judgement

    @property
    def key(self) -> tuple[str, str, tuple[str, ...]]:
        """Failures with one key are taken for one fault."""
        kind = self.kind if self.is_smallest else f"{self.kind} (not made smaller)"
        return self.result.backend, kind, self.operations if self.is_smallest else ()


@dataclass(slots=True)
class Found:
    """What a hunt has come to so far."""

    programs: int = 0
    valid: int = 0
    given_back: int = 0
    verdicts: Counter[str] = field(default_factory=Counter)
    coverage: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    failures: dict[tuple[str, str, tuple[str, ...]], Failure] = field(default_factory=dict)
    times: Counter[tuple[str, str, tuple[str, ...]]] = field(default_factory=Counter)
    seconds: float = 0.0
    interrupted: bool = False

    @property
    def passes(self) -> bool:
        """Whether every difference is explained: by the ledger, or because eager differs from itself."""
        return all(failure.judgement.passes for failure in self.failures.values())

    def end(self, event: Event) -> None:
        """Counts a program of which all runs have ended."""
        self.programs += 1
        self.valid += not event["raises"]
        self.given_back += event["given_back"]
        self.verdicts.update(event["verdicts"])
        self.coverage.update(tuple(entry) for entry in event["coverage"])

    def fail(self, failure: Failure) -> bool:
        """Counts a failure; whether it is the first of its key, or simpler than the first."""
        known = self.failures.get(failure.key)
        self.times[failure.key] += 1
        is_news = known is None or len(failure.source) < len(known.source)
        if is_news:
            self.failures[failure.key] = failure
        return known is None


Tell = Callable[[Found, Failure | None], None]


def hunt(settings: Settings, tell: Tell) -> Found:
    """Runs every program of the seed. `tell` hears of each program that ended and of each new failure.

    An interrupt ends the hunt, and what was found by then is returned.
    """
    found, known = Found(), ledger.read(device=settings.device)
    began = datetime.datetime.now()
    inbox: queue.Queue[Event | None] = queue.Queue()
    stop = threading.Event()
    shards = [_Shard(settings, number, inbox, stop) for number in range(settings.jobs)]
    for shard in shards:
        shard.start()
    try:
        for event in _received(inbox, len(shards)):
            _hear(event, found, known, settings, tell)
            found.seconds = (datetime.datetime.now() - began).total_seconds()
    except KeyboardInterrupt:
        found.interrupted = True
    finally:
        stop.set()
        for shard in shards:
            shard.join()
    return found


def _received(inbox: queue.Queue[Event | None], shards: int) -> Iterator[Event]:
    """The events of all shards, until each has said None."""
    while shards:
        event = inbox.get()
        if event is None:
            shards -= 1
        else:
            yield event


def _hear(event: Event, found: Found, known: Sequence[Known], settings: Settings, tell: Tell) -> None:
    if event["event"] == "error":
        raise RuntimeError(event["detail"])
    if event["event"] == "end":
        found.end(event)
        tell(found, None)
    elif event["event"] == "failure":
        failure = _failure(event, known)
        is_new = found.fail(failure)
        if found.failures[failure.key] is failure:
            store(failure, settings)
        if is_new:
            tell(found, failure)


def _failure(event: Event, known: Sequence[Known]) -> Failure:
    result = outcome.read(event["result"])
    judgement = ledger.judge(result, known, datetime.date.today())
    if result.verdict in UNSETTLED:
        judgement = Judgement(True, (f"{result.verdict}: eager itself does not settle it",))
    if event["alone"] == AS_MUCH:
        judgement = Judgement(True, ("Dynamo alone, with eager behind it, fails in the same way",))
    return Failure(
        event["index"],
        event["kind"],
        event["source"],
        tuple(event["operations"]),
        event["alone"],
        event["is_smallest"],
        result,
        judgement,
    )


def store(failure: Failure, settings: Settings) -> Path:
    """Writes the failing program as a file that runs with torch alone."""
    settings.store.mkdir(parents=True, exist_ok=True)
    path = settings.store / f"{_file_name(failure)}.py"
    told = [f"{failure.result.backend}, {failure.result.mode}: {failure.kind}"]
    told += [f"{found.field} at {found.path}: {found.detail}"[:300] for found in failure.result.differences[:4]]
    told += failure.result.detail.splitlines()[:4]
    told.append(f"Program {settings.seed}:{failure.index}; Dynamo alone: {failure.alone}")
    text = stored(failure.source, "\n".join(told), failure.result.backend, failure.result.mode, failure.kind)
    path.write_text(text, encoding="utf-8")
    return path


def _file_name(failure: Failure) -> str:
    words = (failure.result.backend, *failure.key[1:2], *failure.key[2])
    return re.sub(r"[^a-z0-9_]+", "-", "-".join(words).lower()).strip("-")[:120]


class _Shard(threading.Thread):
    """Runs every J-th program in children, one after the other, and passes on what they say. What ended a child is run
    again in one of its own, which tells whether it was the program or what ran before it."""

    def __init__(
        self, settings: Settings, number: int, inbox: queue.Queue[Event | None], stop: threading.Event
    ) -> None:
        super().__init__(daemon=True)
        self._settings, self._inbox, self._stop_asked = settings, inbox, stop
        self._left = list(range(settings.first + number, settings.first + settings.examples, settings.jobs))
        self._running: Event | None = None
        self._suspect: Event | None = None
        self._ended = 0

    def run(self) -> None:
        try:
            while self._left and not self._stop_asked.is_set():
                self._run_child()
        except Exception as error:
            self._inbox.put({"event": "error", "detail": f"{type(error).__name__}: {error}"})
        finally:
            if self._suspect is not None:
                self._accuse("", "it was not run again")
            self._inbox.put(None)

    def _run_child(self) -> None:
        indices = self._left[:BLOCK] if self._suspect is None else [self._suspect["index"]]
        request, self._ended = self._settings.request(indices), 0
        child = Child(
            "assay.harness.search.hunt_worker",
            json.dumps(dataclasses.asdict(request)),
            environment=sharing(),
            speaks=True,
        )
        try:
            lost = self._listen(child)
        finally:
            child.end()
        if self._running is not None and not self._stop_asked.is_set():
            self._lost(lost.verdict, f"{lost.told}\n{last_words(child.said())}")
        elif self._suspect is not None and self._suspect["index"] not in self._left:
            self._accuse("after others", "not when it runs in a process of its own")

    def _listen(self, child: Child) -> Lost:
        """Passes on events until the child ends or is silent for too long; says which."""
        limit_s = START_S
        try:
            while True:
                line = child.line(limit_s, self._stop_asked.is_set)
                limit_s = self._settings.timeout_s or TIMEOUT_S
                self._note(json.loads(line))
        except Lost as lost:
            return lost

    def _note(self, event: Event) -> None:
        match event["event"]:
            case "begin":
                self._running = {"index": event["index"], "source": "# it was being drawn"}
            case "drawn":
                self._running = {"index": event["index"], "source": event["source"]}
            case "alive" if self._running is not None:
                self._running = self._running | {"source": event["source"]}
            case "end":
                self._left.remove(event["index"])
                self._running = None
                self._ended += 1
                self._inbox.put(event)
            case "failure":
                self._inbox.put(event)

    def _lost(self, verdict: str, said: str) -> None:
        """The program that was running took its process with it, or never ended."""
        running, self._running = self._running, None
        assert running is not None
        if self._suspect is None:
            self._suspect = {"verdict": verdict, "said": said, "before": self._ended, **running}
            if self._ended:
                return
        self._left.remove(running["index"])
        ended = {"verdicts": [verdict], "raises": False, "given_back": False, "coverage": []}
        self._inbox.put({"event": "end", "index": running["index"], **ended})
        self._accuse("", "in a process of its own")

    def _accuse(self, when: str, how: str) -> None:
        """Tells of a program that ended its process."""
        suspect, self._suspect = self._suspect, None
        assert suspect is not None
        verdict, before = suspect["verdict"], suspect["before"]
        detail = f"{how}; {before} programs ran before it where it ended\n{suspect['said']}"
        result = Result("programs.process", self._settings.modes[0], self._settings.backends[0], verdict, detail=detail)
        self._inbox.put(
            {
                "event": "failure", "kind": f"{verdict} of the process {when}".strip(), "operations": (),
                "alone": "not run", "is_smallest": False, "result": dataclasses.asdict(result),
                "index": suspect["index"], "source": suspect["source"],
            }
        )  # fmt: skip
