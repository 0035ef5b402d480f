"""What a night runs, each part in a process of its own that is ended when its share of the time is up.

A part that is ended writes its report first: what had ended by then is in it, and is counted. A part that dies is said.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

RUNS = "{runs}"
RUN_OF_MACHINE_S = 8.0
"""What a run of the state machine takes at most. It writes no report when it is cut, and is told how many runs fit."""
GRACE_S = 45.0
"""How long a part may take to write its report once it was told to end."""


@dataclass(frozen=True, slots=True)
class Part:
    """A command of `assay`, and its share of the time. `report`: whether it takes `--json`."""

    name: str
    arguments: tuple[str, ...]
    share: float


@dataclass(frozen=True, slots=True)
class Ran:
    """How a part ended: its report if it wrote one, whether its time was up."""

    part: Part
    seconds: float
    status: int | None
    document: dict[str, Any] | None

    @property
    def is_cut(self) -> bool:
        return bool(self.document and self.document.get("interrupted"))

    def line(self) -> str:
        """`zoo        40 rows in 180 s, cut short`"""
        if self.document is None:
            return f"{self.part.name:<12}wrote no report (exit status {self.status})"
        rows = len(self.document.get("results", self.document.get("rows", ())))
        count = next((self.document[name] for name in ("programs", "samples") if name in self.document), rows)
        cut = ", cut short: its time was up" if self.is_cut else ""
        return f"{self.part.name:<12}{count} rows in {self.seconds:.0f} s{cut}"


def parts(backends: Sequence[str], seed: int) -> tuple[Part, ...]:
    """The parts of a night for backends. What is drawn changes with the seed: another night tries other programs."""
    named = tuple(word for backend in backends for word in ("--backend", backend))
    part_of_ops = f"{seed % 400 + 1}/400"
    return (
        Part("zoo", ("run", "zoo", "--isolate", "--timeout", "300", *named), 0.25),
        Part("semantics", ("run", "semantics", *named), 0.25),
        Part("ops", ("run", "ops", "--shard", part_of_ops, "--jobs", "1", *named), 0.15),
        Part("programs", ("run", "programs", "--seed", str(seed), "--examples", "100000", "--jobs", "1", *named), 0.15),
        Part("machine", ("run", "machine", "--seed", str(seed), "--runs", RUNS, *named), 0.05),
        Part("selftest", ("selftest", "--backends", "--quick", "--jobs", "1"), 0.15),
    )


def run_part(part: Part, limit_s: float, folder: Path) -> Ran:
    """Runs a part for so long at most. Its output goes to a file beside its report."""
    path = folder / f"{part.name}.json"
    runs = (
        str(max(1, int(limit_s / RUN_OF_MACHINE_S / part.arguments.count("--backend"))))
        if RUNS in part.arguments
        else ""
    )
    arguments = [runs if word == RUNS else word for word in part.arguments]
    command = [sys.executable, "-m", "assay", *arguments, "--json", str(path)]
    start = time.monotonic()
    with (folder / f"{part.name}.log").open("w") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
        status = _ended(process, limit_s)
    return Ran(part, time.monotonic() - start, status, _read(path))


def _ended(process: subprocess.Popen[bytes], limit_s: float) -> int | None:
    """The exit status, after the process was told to end if need be; None if it had to be killed."""
    try:
        return process.wait(limit_s)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGTERM)
    try:
        return process.wait(GRACE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        return None


def _read(path: Path) -> dict[str, Any] | None:
    try:
        document = json.loads(path.read_text())
    except (OSError, ValueError):
        return None
    return document if isinstance(document, dict) else None
