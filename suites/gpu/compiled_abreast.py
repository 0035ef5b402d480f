"""Many models beside Inductor on one GPU: `python -m assay.suites.gpu.compiled_abreast --suite architectures`.

Compiling takes most of the time of such a comparison, and one core. So `--jobs` processes compile, a model in one mode
each. Each is timed alone: while one is, all others are stopped (SIGSTOP). What a first call waited so is taken off its
time. What has not ended after `--budget` seconds gives a row that says how far it came.

The device serves all processes, so that a first call takes longer here than alone. Both compilers bear that alike.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from typing import IO, Any

from assay.harness.backends.precision import at_precision
from assay.harness.case import MODES
from assay.harness.measure import geometric_mean
from assay.suites.gpu.zoo import Pause, asked, asked_cases, keep, measured, timed_calls

READY, GO, ROW = "ready", "go", "row "


@dataclass(slots=True)
class Others:
    """The processes that compile, of which all but one can be stopped for a while."""

    running: dict[int, list[Pause]] = field(default_factory=dict)
    """The pauses of each process, in seconds of the monotonic clock."""
    lock: threading.Lock = field(default_factory=threading.Lock)

    def start(self, command: Sequence[str], said: IO[str]) -> subprocess.Popen[str]:
        """Starts a process in a group of its own, but not while one is timed."""
        with self.lock:
            process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=said, text=True, start_new_session=True
            )
            self.running[process.pid] = []
        return process

    @contextlib.contextmanager
    def stopped(self, chosen: int) -> Iterator[None]:
        """Stops all processes but the chosen one, with their children."""
        with self.lock:
            others = [pid for pid in self.running if pid != chosen]
            began = time.monotonic()
            _tell(others, signal.SIGSTOP)
            try:
                yield
            finally:
                _tell(others, signal.SIGCONT)
                for pid in others:
                    self.running[pid].append((began, time.monotonic()))

    def end(self, process: subprocess.Popen[str]) -> list[Pause]:
        """Ends a process with its children, and gives the pauses that it had."""
        with self.lock:
            _tell([process.pid], signal.SIGKILL)
            process.wait()
            return self.running.pop(process.pid)


def _tell(groups: Sequence[int], what: signal.Signals) -> None:
    for group in groups:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(group, what)


def row_of(name: str, mode: str, given: argparse.Namespace, others: Others) -> dict[str, Any]:
    """The row of a model in one mode, out of a process of its own."""
    row: dict[str, Any] = {"model": f"{given.suite}.{name}", "mode": mode}
    if time.monotonic() > given.end:
        return row | {"error": f"not begun within {given.budget} s"}
    command = (sys.executable, "-m", __spec__.name, *given.passed, "--mode", mode, "--worker", name)
    with tempfile.TemporaryFile("w+") as said:
        process = others.start(command, said)
        limit = threading.Timer(given.end - time.monotonic(), _tell, ([process.pid], signal.SIGKILL))
        limit.start()
        try:
            found = _timed_alone(process, others)
        finally:
            limit.cancel()
            pauses = others.end(process)
        if found is None:
            said.seek(0)
            return row | {"error": f"not ended within {given.budget} s: {_last(said.read(), f'{given.suite}.{name}')}"}
    return timed_calls(found, pauses)


def _timed_alone(process: subprocess.Popen[str], others: Others) -> dict[str, Any] | None:
    """The row that a process writes once it has been told to go; None where it ends before."""
    assert process.stdin is not None and process.stdout is not None
    for line in process.stdout:
        if line.startswith(ROW):
            return dict(json.loads(line.removeprefix(ROW)))
        if line.strip() == READY:
            with others.stopped(process.pid):
                process.stdin.write(GO + "\n")
                process.stdin.flush()
                row = next((text for text in process.stdout if text.startswith(ROW)), None)
            return None if row is None else dict(json.loads(row.removeprefix(ROW)))
    return None


def _last(said: str, name: str) -> str:
    """The last step that a process named, or the end of what it said."""
    lines = [line for line in said.splitlines() if line.strip()]
    steps = [line for line in lines if line.startswith(name)]
    return (steps or lines or ["it said nothing"])[-1][-300:]


def work(given: argparse.Namespace, case: Any) -> None:
    """Compiles and times one model, as the process that started this one says."""

    def wait() -> None:
        print(READY, flush=True)
        if sys.stdin.readline().strip() != GO:
            raise RuntimeError("the process that compares is gone")

    print(ROW + json.dumps(measured(at_precision(case, given.mode, given.precision), given, wait)), flush=True)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = asked("python -m assay.suites.gpu.compiled_abreast")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="processes that compile at a time")
    parser.add_argument("--budget", type=float, default=3600.0, help="seconds for all")
    parser.add_argument("--modes", default=",".join(MODES))
    parser.add_argument("--worker", default="", help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    if given.worker:
        given.models = [given.worker]
        work(given, asked_cases(parser, given)[given.worker])
        return
    given.end = time.monotonic() + given.budget
    given.passed = [
        f"--{key}={getattr(given, key)}" for key in ("suite", "size", "precision", "backend", "against", "rounds")
    ]
    tasks = [(name, mode) for name in asked_cases(parser, given) for mode in given.modes.split(",")]
    rows: list[dict[str, Any]] = []
    others = Others()
    with ThreadPoolExecutor(given.jobs) as pool:
        for task in as_completed([pool.submit(row_of, name, mode, given, others) for name, mode in tasks]):
            rows.append(task.result())
            keep(rows, given)
    for mode in given.modes.split(","):
        mean = geometric_mean(row.get("speed_ratio") for row in rows if row["mode"] == mode)
        print(f"geometric mean of the speed ratios, {mode}: {mean}")


if __name__ == "__main__":
    main()
