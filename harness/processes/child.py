"""A Python process of our own, in a session of its own: what it says, how long it may take, how it ended.

All that the harness runs in another process goes through `Child`: rows (`isolate`), measurements (`worker`), drawn
programs, batches, and the state machine. A child that crashes or hangs ends nobody else, and all that it started ends
with it.
"""

from __future__ import annotations

import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

LAST_LINES = 12
POLL_S = 1.0
ABORT_S = 5.0
"""How long the fault handler may write."""
WAIT_POLICY = "OMP_WAIT_POLICY"


def sharing() -> dict[str, str]:
    """Variables for a child that has no cores to itself: a thread that waits for another one sleeps. If it spins, it
    takes the core that the other one needs, and rows take nine times as long. Whoever has set a policy keeps it."""
    return {} if WAIT_POLICY in os.environ else {WAIT_POLICY: "passive"}


class Lost(Exception):
    """A child that says nothing more. `verdict` is `timeout`, `crash`, or `stopped` where nobody waits any longer."""

    def __init__(self, verdict: str, told: str) -> None:
        super().__init__(told)
        self.verdict = verdict
        self.told = told


class Child:
    """`python -m MODULE ARGUMENTS` with this process's paths, and `environment` beside its variables.

    `speaks`: its standard output is read line by line. `listens`: it can be told lines. `is_shown`: what it prints is
    seen as if it were this process's; otherwise it is kept, and `said()` reads it.
    """

    def __init__(
        self,
        module: str,
        *arguments: str,
        environment: Mapping[str, str] | None = None,
        speaks: bool = False,
        listens: bool = False,
        is_shown: bool = False,
    ) -> None:
        path = os.pathsep.join(path or "." for path in sys.path)
        self._said: Any = None if is_shown else tempfile.TemporaryFile("w+", errors="replace")
        self._lines: queue.Queue[str | None] = queue.Queue()
        self._process = subprocess.Popen(
            [sys.executable, "-X", "faulthandler", "-m", module, *arguments],
            stdin=subprocess.PIPE if listens else subprocess.DEVNULL,
            stdout=subprocess.PIPE if speaks else self._said,
            stderr=self._said,
            text=True,
            env={**os.environ, "PYTHONPATH": path, **(environment or {})},
            start_new_session=True,
        )
        if speaks:
            threading.Thread(target=self._read, daemon=True).start()

    @property
    def status(self) -> int | None:
        """The exit status, negative for a signal; None while it runs."""
        return self._process.poll()

    @property
    def number(self) -> int:
        """Its process's number, and that of the group of processes that it leads."""
        return self._process.pid

    def tell(self, line: str) -> None:
        """Hands it one line on its standard input."""
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()

    def line(self, limit_s: float, is_stopped: Callable[[], bool] = lambda: False) -> str:
        """The next line that it says. Raises: Lost where none comes."""
        until = time.monotonic() + limit_s
        while (left := until - time.monotonic()) > 0:
            if is_stopped():
                raise Lost("stopped", "stopped")
            try:
                line = self._lines.get(timeout=min(POLL_S, left))
            except queue.Empty:
                continue
            if line is None:
                raise Lost("crash", ending(self._process.wait()))
            return line
        raise Lost("timeout", f"silent for {limit_s:g} s")

    def wait(self, limit_s: float) -> int | None:
        """The exit status, negative for a signal; None where it still runs after so many seconds."""
        try:
            return self._process.wait(limit_s)
        except subprocess.TimeoutExpired:
            return None

    def said(self) -> str:
        """What it has printed, but for the lines that are read."""
        if self._said is None:
            return ""
        self._said.seek(0)
        return str(self._said.read())

    def abort(self) -> None:
        """Ends it by SIGABRT, at which Python's fault handler writes where it was: `said()` then has its calls."""
        if self.status is None:
            self._process.send_signal(signal.SIGABRT)
            self.wait(ABORT_S)

    def end(self) -> None:
        """Kills what is left of its session, itself and all that it started, and collects it."""
        try:
            os.killpg(self._process.pid, signal.SIGKILL)
        except ProcessLookupError:  # nothing is left
            pass
        self._process.wait()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line)
        self._lines.put(None)


def ending(status: int) -> str:
    """How a process with such an exit status ended, in words."""
    return f"killed by {signal.Signals(-status).name}" if status < 0 else f"exit status {status}"


def last_words(said: str) -> str:
    """What a child's standard error tells of its end.

    First comes the first assertion that failed: one on a device fails long before the process ends. Then comes the
    fault that Python's fault handler wrote of, with the calls of its thread, the innermost first. Without a fault, the
    last lines."""
    lines = said.rstrip().splitlines()
    failed = [line for line in lines if "Assertion" in line and "failed" in line][:1]
    fault = next((number for number, line in enumerate(lines) if line.startswith("Fatal Python error")), None)
    if fault is None:
        return "\n".join([*failed, *lines[-2 * LAST_LINES :]]) or "(nothing)"
    place = next((n for n in range(fault, len(lines)) if lines[n].startswith("Current thread")), fault + 1)
    return "\n".join([*failed, *lines[max(0, fault - LAST_LINES) : fault + 1], *lines[place : place + 2 * LAST_LINES]])
