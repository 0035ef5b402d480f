"""Runs a row in a process of its own, so that neither a crash nor a hang ends the run or the report.

    request := {"origin": .., "case": .., "mode": .., "backend": .., "asked": what RunRequest takes}

The child finds the case again by its origin and name, runs it, and writes the row to a file. A child that ends
without one crashed: the verdict names the signal or the exit status and the last lines of its standard error. A child
that is not done in time is killed with all that it started.

A request is plain data, and nothing here imports torch. So what only waits for rows, such as a worker of a cluster, is
small and there soon.
"""

from __future__ import annotations

import dataclasses
import json
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from assay.harness import outcome, timed_alone
from assay.harness.outcome import Result
from assay.harness.processes.child import Child, ending, last_words, sharing
from assay.harness.processes.worker import warm_environment

MODULE = "assay.harness.processes.isolate"


def lost(request: Mapping[str, Any], verdict: str, detail: str) -> Result:
    """The row of a process that gave none."""
    return Result(request["case"], request["mode"], request["backend"], verdict, detail=detail)


def row_apart(request: Mapping[str, Any], timeout_s: float, environment: Mapping[str, str] | None = None) -> Result:
    """The row of a process of its own; `timeout` or `crash` where that process gave nothing.

    `environment`: variables of that process beside those of this one.
    """
    with tempfile.TemporaryDirectory(prefix="assay-") as folder:
        row = Path(folder) / "row.json"
        shared = sharing() if timed_alone.has_others() else {}
        child = Child(MODULE, json.dumps(request), str(row), environment={**shared, **(environment or {})})
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
        words = last_words(child.said())
        verdict = "timeout" if status is None else "crash"
        return lost(request, verdict, f"{ended}. Last of its standard error:\n{words}")


def warm_row(request: Mapping[str, Any], timeout_s: float, before: Sequence[str] = ()) -> Result:
    """The row of a process whose caches another one has filled. Where that one does not pass, its own row is given:
    then there is nothing to start from.

    `before`: the case runs in these modes first, each in a process that fills the caches too.
    """
    with tempfile.TemporaryDirectory(prefix="assay-cache-") as folder:
        environment = warm_environment(Path(folder))
        untimed = {**request, "asked": {**request["asked"], "timed": False}}
        for other in before:
            row_apart({**untimed, "mode": other}, timeout_s, environment)
        first = row_apart(untimed, timeout_s, environment)
        if first.verdict != "same":
            empty = f"in caches that {', '.join(before)} has filled" if before else "with empty caches"
            told = f"in the process that fills the caches: {first.detail}" if first.detail else empty
            return dataclasses.replace(first, detail=told)
        row = row_apart(request, timeout_s, environment)
    told = f"warm start, {row.begun.get('restored', 0)} graphs restored"
    return dataclasses.replace(row, is_warm=True, detail="; ".join(part for part in (told, row.detail) if part))
