"""Runs a case in a process of its own, so that neither a crash nor a hang ends the run or the report.

The child finds the case again by its origin and name, runs it, and writes the row to a file. A child that ends
without one crashed: the verdict names the signal or the exit status and the last lines of its standard error. A child
that is not done in time is killed with all that it started.
"""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from harness import outcome
from harness.case import Case
from harness.discover import discover
from harness.outcome import Result
from harness.run import run_case

LAST_LINES = 12


def run_isolated(
    case: Case,
    mode: str,
    backend: str,
    *,
    size: str = "tiny",
    seed: int = 0,
    device: str = "cpu",
    timeout_s: float = 300.0,
    timed: bool = True,
    is_thorough: bool = False,
) -> Result:
    """What `run_case` gives, from a process of its own; `timeout` or `crash` where that process gave nothing.

    Raises: ValueError for a case that `discover` did not find, since another process could not find it either.
    """
    if not case.origin:
        raise ValueError(f"case {case.name} has no origin: only cases that discover() found can be run in a process")
    with tempfile.TemporaryDirectory(prefix="assay-") as folder:
        row = Path(folder) / "row.json"
        request = {
            "origin": case.origin,
            "case": case.name,
            "row": str(row),
            "run": {
                "mode": mode,
                "backend": backend,
                "size": size,
                "seed": seed,
                "device": device,
                "timed": timed,
                "is_thorough": is_thorough,
            },
        }
        said = Path(folder) / "stderr"
        status = _run_child(request, said, timeout_s)
        if row.is_file():
            return outcome.read(json.loads(row.read_text()))
        ended = f"not done after {timeout_s:g} s" if status is None else _ended(status)
        verdict = "timeout" if status is None else "crash"
        words = last_words(said.read_text(errors="replace"))
        return Result(case.name, mode, backend, verdict, detail=f"{ended}. Last of its standard error:\n{words}")


def _run_child(request: dict[str, Any], said: Path, timeout_s: float) -> int | None:
    """The exit status, negative for a signal; None if the child was killed because its time was up."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(path or "." for path in sys.path)}
    command = [sys.executable, "-X", "faulthandler", "-m", "harness.processes.isolate", json.dumps(request)]
    with said.open("wb") as stderr:
        child = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=stderr, stderr=stderr, env=environment, start_new_session=True
        )
        try:
            return child.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return None
        finally:
            _end(child)


def _end(child: subprocess.Popen[bytes]) -> None:
    """Kills what is left of the child's session, itself and all that it started, and collects it."""
    try:
        os.killpg(child.pid, signal.SIGKILL)
    except ProcessLookupError:  # nothing is left
        pass
    child.wait()


def _ended(status: int) -> str:
    if status >= 0:
        return f"the process ended by itself with status {status}"
    return f"the process was ended by {signal.Signals(-status).name}"


def last_words(said: str) -> str:
    """What a child's standard error tells of its end: the first assertion that failed, as one on a device does long
    before the process ends; the fault that Python's fault handler wrote of, and where the thread was that had it, the
    innermost call first; or, without a fault, the last lines."""
    lines = said.rstrip().splitlines()
    failed = [line for line in lines if "Assertion" in line and "failed" in line][:1]
    fault = next((number for number, line in enumerate(lines) if line.startswith("Fatal Python error")), None)
    if fault is None:
        return "\n".join([*failed, *lines[-2 * LAST_LINES :]]) or "(nothing)"
    place = next((n for n in range(fault, len(lines)) if lines[n].startswith("Current thread")), fault + 1)
    return "\n".join([*failed, *lines[max(0, fault - LAST_LINES) : fault + 1], *lines[place : place + 2 * LAST_LINES]])


def main(argument: str) -> None:
    """The child: runs what the request names and writes its row, whole or not at all."""
    request = json.loads(argument)
    (case,) = [found for found in discover((request["origin"],)) if found.name == request["case"]]
    run = request["run"]
    result = run_case(case, run.pop("mode"), run.pop("backend"), **run)
    row = Path(request["row"])
    part = row.with_suffix(".part")
    part.write_text(json.dumps(dataclasses.asdict(result)))
    part.rename(row)


if __name__ == "__main__":
    main(sys.argv[1])
