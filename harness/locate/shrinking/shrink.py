"""A failing case made smaller, within a time, by processes that nothing which they try can take with it.

A worker tries one program after another (`shrink_worker`). Where it dies of one, or is silent for too long, that
program is left out, or kept, if dying is how the case fails. Another worker goes on from the smallest program so far.

The smallest program is run once more, in a process that has run nothing else. Where it does not fail there, programs
that were tried before have left something behind. The search then begins again, with a process for each program.
"""

from __future__ import annotations

import json
import pickle
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from assay.harness import outcome
from assay.harness.case import Case
from assay.harness.locate.ladder import Found
from assay.harness.locate.runner import is_akin, is_alike, lost_row, step_of
from assay.harness.locate.shrinking.candidates import BEST, TRIED, TRYING, Candidate, told
from assay.harness.outcome import Result
from assay.harness.processes.child import Child, Lost, sharing
from assay.harness.protocol.acts import Act, Protocol
from assay.harness.search.generated import Kind, kind_of

WORKER = "assay.harness.locate.shrinking.shrink_worker"
START_S = 120.0
"""How long a worker may take until it tries its first program."""
CANDIDATE_S = 20.0
"""How long one program may take, while the limit is not much longer; see `Shrinking.candidate_s`."""


class NotShrunk(Exception):
    """No program of the case fails by itself; the message says why."""


@dataclass(frozen=True, slots=True)
class Shrunk:
    """The smallest program found: its text, how it fails, how many calls it has left."""

    body: str
    inputs: str
    source: str
    operators: tuple[str, ...]
    numbers: int
    is_text_alone: bool
    row: Result
    on_backend: bool
    """Whether it fails in the same way on the whole backend, and not on the rung alone."""
    is_case: bool = False
    """Whether it is the case's own text, as no graph of it fails by itself. Then `body` makes its call, too."""
    acts: Protocol = ()
    """What its caller does, where it does not fail by a few calls."""

    @staticmethod
    def of(line: Mapping[str, Any], on_backend: bool) -> Shrunk:
        row = outcome.read(line["row"])
        return Shrunk(
            line["body"], line["inputs"], line["source"], tuple(line["operators"]), line["numbers"],
            line["is_text_alone"], row, on_backend, line["is_case"], tuple(Act(**act) for act in line["acts"]),
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Budget:
    """What a search may take: seconds of the clock, and so many programs. One that ends by the programs that it has
    tried gives the same on a busy machine."""

    limit_s: float
    programs: int | None = None


def shrunk(case: Case, found: Found, backend: str, *, size: str, seed: int, budget: Budget) -> Shrunk:
    """The smallest program that fails as the case does on its first failing rung.

    Raises: NotShrunk where neither a graph of the case fails by itself, nor its own text.
    """
    kind = found.kind
    request = {
        "origin": case.origin, "case": case.name, "mode": found.mode, "size": size, "seed": seed,
        "rung": found.first.rung.backend, "is_warm": found.first.rung.is_warm, "backend": backend,
        "kind": [kind.verdict, sorted(kind.fields), kind.error], "acts": found.acts, "most": budget.programs,
        "step": step_of(found.first.row),
    }  # fmt: skip
    environment = {**sharing(), **dict(found.first.rung.environment)}
    with tempfile.TemporaryDirectory(prefix="assay-shrink-") as folder:
        request["folder"] = folder
        return Shrinking(
            request, environment, Path(folder), kind, time.monotonic() + budget.limit_s, budget.limit_s
        ).run()


@dataclass(slots=True)
class Shrinking:
    """The workers of one search, and what they have said. `folder` holds what one leaves to the next."""

    request: Mapping[str, Any]
    environment: Mapping[str, str]
    folder: Path
    kind: Kind
    end_s: float
    limit_s: float
    best: dict[str, Any] = field(default_factory=dict)
    is_last: bool = False
    """Whether the search is over, and the smallest program is to run on the whole backend."""
    is_apart: bool = False
    """Whether each program is to run in a process of its own."""

    @property
    def candidate_s(self) -> float:
        """How long a worker may be silent: programs that fail by their time are to end within the limit. In the last
        run its process compiles for the first time."""
        return START_S if self.is_last or self.is_apart else max(CANDIDATE_S, self.limit_s / 3)

    def run(self) -> Shrunk:
        """Raises: NotShrunk."""
        ended = self._ended()
        if self.best and not ended.get("on_backend") and self.request["rung"] == self.request["backend"]:
            self._begin_apart()
            ended = self._ended()
        if not self.best:
            raise NotShrunk(ended["why"])
        return Shrunk.of(self.best, bool(ended.get("on_backend")))

    def _ended(self) -> dict[str, Any]:
        """The last line of a search."""
        ended: dict[str, Any] = {}
        while not ended:
            ended = self._worked()
        return ended

    def _begin_apart(self) -> None:
        """Forgets what was found. The search may take half as long again."""
        for name in (BEST, TRIED, TRYING):
            (self.folder / name).unlink(missing_ok=True)
        self.best, self.is_last, self.is_apart = {}, False, True
        self.end_s = max(self.end_s, time.monotonic() + self.limit_s / 2)

    def _worked(self) -> dict[str, Any]:
        """The last line of one process and of the workers that it forks; nothing where another process is to go on."""
        child = Child(WORKER, environment=self.environment, speaks=True, listens=True)
        try:
            ended: dict[str, Any] = {}
            while not ended:
                turn = {"is_last": self.is_last, "is_apart": self.is_apart, "left_s": self.end_s - time.monotonic()}
                child.tell(json.dumps({**self.request, **turn}))
                ended = self._said(child)
        except (Lost, OSError) as lost:
            child.end()
            ended = self._lost(lost, child)
        finally:
            child.end()
        return ended

    def _said(self, child: Child) -> dict[str, Any]:
        """The last line of one worker; nothing where another is to go on. Raises: Lost."""
        limit_s = START_S
        while True:
            line = json.loads(child.line(limit_s))
            limit_s = self.candidate_s
            if "done" in line:
                return dict(line)
            if "next" in line:
                return {}
            if "found" in line:
                (self.folder / TRYING).unlink(missing_ok=True)
                self.is_last = True
                return {}
            if "ended" in line:
                return self._lost(Lost("crash", line["ended"]), child)
            if "source" in line:
                self.best = line

    def _lost(self, lost: Lost | OSError, child: Child) -> dict[str, Any]:
        """Takes note of the program that a worker died of. Its last line, where no other is to go on."""
        row = lost_row(self.request["case"], self.request["mode"], self.request["rung"], lost, child)
        trying = self.folder / TRYING
        if not trying.is_file():
            return {"done": True, "why": row.detail}
        tried: Candidate = pickle.loads(trying.read_bytes())
        fails = (is_akin if tried.is_last else is_alike)(kind_of(row), self.kind)
        if tried.is_last:
            return {"done": True, "on_backend": fails}
        if fails:
            trying.rename(self.folder / BEST)
            self.best = told(tried, row, self.request["mode"])
        trying.unlink(missing_ok=True)
        is_over = time.monotonic() > self.end_s and not self.best
        return {"done": True, "why": f"its time was up: {row.detail}"} if is_over else {}
