"""Runs a case in a process of its own, so that neither a crash nor a hang ends the run or the report.

The child finds the case again by its origin and name, runs it, and writes the row to a file. A child that ends
without one crashed: the verdict names the signal or the exit status and the last lines of its standard error. A child
that is not done in time is killed with all that it started.

A warm start is seen in a second process, whose caches a first one has filled.
"""

from __future__ import annotations

import dataclasses
import json
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from assay.harness import outcome, timed_alone
from assay.harness.case import Case
from assay.harness.discover import discover
from assay.harness.outcome import Result
from assay.harness.processes.child import Child, ending, last_words, sharing
from assay.harness.processes.worker import warm_environment
from assay.harness.run import DEFAULT_REQUEST, RunRequest, run_case


@dataclass(frozen=True, slots=True)
class Request:
    """What a process is told of a row that it is to run: where its case is found, and what `run_case` takes."""

    origin: str
    case: str
    mode: str
    backend: str
    asked: RunRequest

    def data(self) -> dict[str, Any]:
        """As plain data."""
        return dataclasses.asdict(self)

    def lost(self, verdict: str, detail: str) -> Result:
        """The row of a process that gave none."""
        return Result(self.case, self.mode, self.backend, verdict, detail=detail)


def ran(request: Mapping[str, Any]) -> Result:
    """The row that a request's plain data asks for, run in this process."""
    (case,) = [found for found in discover((request["origin"],)) if found.name == request["case"]]
    return run_case(case, request["mode"], request["backend"], RunRequest(**request["asked"]))


def run_isolated(
    case: Case,
    mode: str,
    backend: str,
    asked: RunRequest = DEFAULT_REQUEST,
    timeout_s: float = 300.0,
    environment: Mapping[str, str] | None = None,
) -> Result:
    """What `run_case` gives, from a process of its own; `timeout` or `crash` where that process gave nothing.

    `environment`: variables of that process beside those of this one.
    Raises: ValueError for a case that `discover` did not find, since another process could not find it either, and for
    a protocol, which a process is not told.
    """
    if not case.origin:
        raise ValueError(f"case {case.name} has no origin: only cases that discover() found can be run in a process")
    if asked.protocol is not None:
        raise ValueError(f"case {case.name} is run in a process of its own, by the protocol that it has there")
    with tempfile.TemporaryDirectory(prefix="assay-") as folder:
        row = Path(folder) / "row.json"
        request = Request(case.origin, case.name, mode, backend, asked)
        arguments = (json.dumps(request.data()), str(row))
        shared = sharing() if timed_alone.has_others() else {}
        child = Child("assay.harness.processes.isolate", *arguments, environment={**shared, **(environment or {})})
        try:
            status = child.wait(timeout_s)
            if status is None:
                child.abort()
        finally:
            child.end()
            timed_alone.leave(child.number)
        if row.is_file():
            return outcome.read(json.loads(row.read_text()))
        ended = f"not done after {timeout_s:g} s" if status is None else ending(status)
        verdict = "timeout" if status is None else "crash"
        words = last_words(child.said())
        return request.lost(verdict, f"{ended}. Last of its standard error:\n{words}")


def run_warm(
    case: Case, mode: str, backend: str, asked: RunRequest = DEFAULT_REQUEST, timeout_s: float = 300.0,
    before: Sequence[str] = (),
) -> Result:  # fmt: skip
    """What `run_isolated` gives of a process whose caches another one has filled. Where that one does not pass, its own
    row is given: then there is nothing to start from.

    `before`: the case runs in these modes first, each in a process that fills the caches too.
    Raises: ValueError for a case that `discover` did not find.
    """
    with tempfile.TemporaryDirectory(prefix="assay-cache-") as folder:
        environment = warm_environment(Path(folder))
        untimed = dataclasses.replace(asked, timed=False)
        for other in before:
            run_isolated(case, other, backend, untimed, timeout_s, environment)
        first = run_isolated(case, mode, backend, untimed, timeout_s, environment)
        if first.verdict != "same":
            empty = f"in caches that {', '.join(before)} has filled" if before else "with empty caches"
            told = f"in the process that fills the caches: {first.detail}" if first.detail else empty
            return dataclasses.replace(first, detail=told)
        row = run_isolated(case, mode, backend, asked, timeout_s, environment)
    told = f"warm start, {row.begun.get('restored', 0)} graphs restored"
    return dataclasses.replace(row, is_warm=True, detail="; ".join(part for part in (told, row.detail) if part))


def main(argument: str, path: str) -> None:
    """The child: runs what the request names and writes its row, whole or not at all."""
    timed_alone.join()
    result = ran(json.loads(argument))
    row = Path(path)
    part = row.with_suffix(".part")
    part.write_text(json.dumps(dataclasses.asdict(result)))
    part.rename(row)


if __name__ == "__main__":
    main(*sys.argv[1:])
