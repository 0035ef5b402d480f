"""Runs one case on one backend after another, in a child that stays, so that torch is imported once.

What a child is told is one line: `{"mode": "train", "backend": "assay", "times": 1, "how": {"quick": true, ...}}`. It
answers with one line, too: `{"rows": [...], "graphs": [[...]], "kernels": [...]}`. A child that dies or is silent is a
crash or a timeout of that run, and a fresh one goes on.
"""

from __future__ import annotations

import dataclasses
import json
import logging
import os
import re
import sys
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from assay.harness import outcome
from assay.harness.backends.switches import SEEN
from assay.harness.calls.cycles import set_aside
from assay.harness.case import Case
from assay.harness.discover import discover
from assay.harness.outcome import Result
from assay.harness.processes.child import Child, Lost, last_words, sharing
from assay.harness.processes.isolate import run_warm
from assay.harness.report.documents import finite
from assay.harness.run import RunRequest, run_case
from assay.harness.search.generated import Kind, kind_of

TIMEOUT_S = 120.0
START_S = 120.0
HARMLESS = ("same", "no-oracle", "fell-back")


@dataclass(frozen=True, slots=True)
class Tried:
    """What a backend came to in its runs. `graphs` and `kernels` are what `switched` saw in the last of them."""

    rows: tuple[Result, ...]
    graphs: tuple[tuple[str, ...], ...] = ()
    kernels: tuple[str, ...] = ()

    def failures(self, like: Kind | None = None) -> list[Result]:
        """The runs that failed, in the way of `like` if it is given."""
        return [row for row in self.rows if is_failure(row) and (like is None or is_akin(kind_of(row), like))]


def is_failure(row: Result) -> bool:
    return row.verdict not in HARMLESS


def step_of(row: Result) -> int | None:
    """The step in which a row failed first, if it says that."""
    told = row.detail if row.verdict == "crash" or not row.differences else row.differences[0].path
    found = re.match(r"step (\d+)", told)
    return int(found[1]) if found else None


def is_alike(one: Kind, other: Kind) -> bool:
    """Whether two failures are taken for one: a field in common, or the same error; a timeout is one of its own."""
    if one.verdict != other.verdict:
        return False
    return bool(one.fields & other.fields) if one.fields or other.fields else one.error == other.error


def is_akin(one: Kind, other: Kind) -> bool:
    """Whether failures of two backends may be one. Backends that run a program by other means put an error in other
    words, so that its class is enough."""
    if (one.verdict, other.verdict) == ("crash", "crash"):
        return one.error.partition(":")[0] == other.error.partition(":")[0]
    return is_alike(one, other)


def lost_row(case: str, mode: str, backend: str, lost: Lost | OSError, child: Child) -> Result:
    """The row of a run whose child gave no answer. One that is silent is ended, and its row says where it was."""
    if isinstance(lost, Lost) and lost.verdict == "timeout":
        child.abort()
    verdict, told = (lost.verdict, lost.args[0]) if isinstance(lost, Lost) else ("crash", str(lost))
    return Result(case, mode, backend, verdict, detail=f"{told}. It said last:\n{last_words(child.said())}")


@dataclass(slots=True)
class Runner:
    """Runs of one case. Use it as a context manager: the child ends with it."""

    case: Case
    size: str = "tiny"
    seed: int = 0
    timeout_s: float = TIMEOUT_S
    runs: int = 0
    is_quick: bool = True
    """Whether it is enough that a backend equals one eager run bit for bit. That is quicker, and sees less."""
    most_acts: int | None = None
    """After how many acts a run ends, where it is known that they are enough for the failure."""
    device: str = "cpu"
    _children: dict[tuple[tuple[str, str], ...], Child] = field(default_factory=dict)

    def __enter__(self) -> Runner:
        return self

    def __exit__(self, *_: object) -> None:
        for child in self._children.values():
            child.end()
        self._children.clear()

    def run(
        self, backend: str, mode: str, times: int = 1, *, is_warm: bool = False,
        environment: tuple[tuple[str, str], ...] = (), limit_s: float | None = None,
    ) -> Tried:  # fmt: skip
        """The case on a backend, so many times; `timeout` or `crash` where the child gives no answer."""
        self.runs += times
        if is_warm:
            return Tried(tuple(self._warm(backend, mode) for _ in range(times)))
        child = self._child(environment)
        try:
            how = {"quick": self.is_quick, "most_acts": self.most_acts}
            child.tell(json.dumps({"mode": mode, "backend": backend, "times": times, "how": how}))
            answer = json.loads(child.line(min(self.timeout_s, limit_s or self.timeout_s) * times))
        except (Lost, OSError) as lost:
            return self._lost(environment, lost, backend, mode)
        rows = tuple(outcome.read(row) for row in answer["rows"])
        return Tried(rows, tuple(map(tuple, answer["graphs"])), tuple(answer["kernels"]))

    def _warm(self, backend: str, mode: str) -> Result:
        """The row of a fresh process with filled caches: the case's other modes have filled them, too."""
        asked = RunRequest(self.size, self.seed, self.device, timed=False, most_acts=self.most_acts)
        others = [other for other in self.case.modes if other != mode]
        return run_warm(self.case, mode, backend, asked, self.timeout_s, others)

    def _lost(self, environment: tuple[tuple[str, str], ...], lost: Lost | OSError, backend: str, mode: str) -> Tried:
        child = self._children.pop(environment)
        row = lost_row(self.case.name, mode, backend, lost, child)
        child.end()
        return Tried((row,))

    def _child(self, environment: tuple[tuple[str, str], ...]) -> Child:
        if environment not in self._children:
            self._children[environment] = self._started(dict(environment))
        return self._children[environment]

    def _started(self, environment: Mapping[str, str]) -> Child:
        request = {"origin": self.case.origin, "case": self.case.name, "size": self.size, "seed": self.seed,
                   "device": self.device}  # fmt: skip
        variables = {**sharing(), **environment}
        child = Child(__spec__.name, json.dumps(request), environment=variables, speaks=True, listens=True)
        child.line(START_S)  # it says that it is there
        return child


def main(argument: str) -> None:
    """The child: answers each line until none comes."""
    output = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    request = json.loads(argument)
    (case,) = [found for found in discover((request["origin"],)) if found.name == request["case"]]
    print("{}", file=output, flush=True)
    for line in sys.stdin:
        print(json.dumps(_answer(case, request, json.loads(line))), file=output, flush=True)


def _answer(case: Case, request: Mapping[str, Any], asked: Mapping[str, Any]) -> dict[str, Any]:
    rows = []
    for _ in range(asked["times"]):
        SEEN.start()
        set_aside()
        wanted = RunRequest(request["size"], request["seed"], request["device"], timed=False, **asked["how"])
        result = run_case(case, asked["mode"], asked["backend"], wanted)
        rows.append(finite(dataclasses.asdict(result)))
    return {"rows": rows, "graphs": SEEN.graphs, "kernels": SEEN.kernels}


if __name__ == "__main__":
    main(sys.argv[1])
