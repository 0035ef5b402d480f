"""What a night runs, each part in a process of its own that is ended when its share of the time is up.

A part that is ended writes its report first: what had ended by then is in it, and is counted. A part that dies is said.
A part that a killed night had begun goes on: rows that ended are in the store, batches and programs in files.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from assay.harness.remember.verdict_on_run import counted

FIRST, KEPT, UNITS = "{first}", "{kept}", "{units}"
"""Words that stand for what is known when a part begins. In this order: the number of the first program, where rows are
kept as they end, and the file of batches that have ended."""
MANY = "100000"
"""More than a night has time for: a part ends when it is told."""
ENDLESS = ("--examples", MANY, "--jobs", "1")
SPREAD = ("--order", "spread")
"""A night that is cut has seen something of everything."""
POLL_S = 1.0
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
    was_told: bool = False
    """Whether it was told to end, as its time was up."""

    @property
    def is_cut(self) -> bool:
        return bool(self.document and self.document.get("interrupted"))

    def line(self) -> str:
        """`zoo        40 rows in 180 s, cut short: its time was up`"""
        if self.document is None:
            why = f"its time was up after {self.seconds:.0f} s" if self.was_told else f"exit status {self.status}"
            return f"{self.part.name:<12}wrote no report ({why})"
        cut = ", cut short: its time was up" if self.is_cut else ""
        return f"{self.part.name:<12}{counted(*amount_of(self.document))} in {self.seconds:.0f} s{cut}"

    @property
    def has_run(self) -> bool:
        """Whether something that the part runs has ended, as its report says."""
        return self.document is not None and amount_of(self.document)[0] > 0


def amount_of(document: Mapping[str, Any]) -> tuple[int, str]:
    """How many have ended, and what they are: `(40, "row")`."""
    if "machine" in document:
        return sum(plan["runs"] for plan in document["machine"]), "run"
    if "kinds" in document:
        return len(document["results"]), "fault"
    amounts = [(document[f"{noun}s"], noun) for noun in ("program", "sample") if f"{noun}s" in document]
    return amounts[0] if amounts else (len(document.get("results", ())), "row")


def parts(backends: Sequence[str], seed: int) -> tuple[Part, ...]:
    """The parts of a night for backends. What is drawn changes with the seed: another night tries other programs."""
    named = tuple(word for backend in backends for word in ("--backend", backend))
    part_of_ops = f"{seed % 400 + 1}/400"
    return (
        Part("zoo", ("run", "zoo", "--isolate", "--timeout", "300", *SPREAD, KEPT, *named), 0.25),
        Part("semantics", ("run", "semantics", *SPREAD, KEPT, *named), 0.25),
        Part("ops", ("run", "ops", "--shard", part_of_ops, "--jobs", "1", "--resume", UNITS, *named), 0.15),
        Part("programs", ("run", "programs", "--seed", str(seed), *ENDLESS, "--first", FIRST, *named), 0.15),
        Part("machine", ("run", "machine", "--seed", str(seed), "--runs", MANY, *named), 0.05),
        Part("selftest", ("selftest", "--backends", "--quick", "--jobs", "1"), 0.15),
    )


@dataclass(frozen=True, slots=True)
class Place:
    """Where a part runs: the night's folder, the options that keep rows in its run, the lock that it holds with it."""

    folder: Path
    keeping: tuple[str, ...] = ()
    locks: tuple[int, ...] = ()

    def report(self, part: Part) -> Path:
        return self.folder / f"{part.name}.json"

    def log(self, part: Part) -> Path:
        return self.folder / f"{part.name}.log"

    def units(self, part: Part) -> Path:
        return self.folder / f"{part.name}.units.jsonl"


def forget(part: Part, place: Place) -> None:
    """Takes away what another night left of a part."""
    for path in (place.report(part), place.log(part), place.units(part)):
        path.unlink(missing_ok=True)


def run_part(part: Part, limit_s: float, place: Place, more_s: float = 0.0) -> Ran:
    """Runs a part for so long at most, behind what it had done before. Its output goes to a file beside its report.

    `more_s`: how much longer it may take until its first row has ended, if it reports rows one by one.
    """
    command = [sys.executable, "-m", "assay.harness.night.part_process", str(os.getpid())]
    command += [*arguments_of(part, place), "--json", str(place.report(part))]
    start = time.monotonic()
    with place.log(part).open("a") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True, pass_fds=place.locks)
        if KEPT in part.arguments:
            wait_for_a_row(process, limit_s + more_s, lambda: has_rows(read_report(part, place)))
        status = ended(process, limit_s - (time.monotonic() - start))
    seconds = time.monotonic() - start
    return Ran(part, seconds, status, read_report(part, place), was_told=seconds > limit_s)


def arguments_of(part: Part, place: Place) -> list[str]:
    """The words of a part's command, in which those are filled in that only this run knows."""
    before = read_report(part, place) or {}
    first = before.get("settings", {}).get("first", 0) + before.get("programs", 0)
    filled = {FIRST: (str(first),), KEPT: place.keeping, UNITS: (str(place.units(part)),)}
    return [found for word in part.arguments for found in filled.get(word, (word,))]


def has_rows(document: Mapping[str, Any] | None) -> bool:
    """Whether a report holds a row."""
    return bool(document and document.get("results"))


def wait_for_a_row(process: subprocess.Popen[bytes], limit_s: float, has_row: Callable[[], bool]) -> None:
    """Waits until the process has reported a row, or has ended, for so long at most."""
    end_s = time.monotonic() + limit_s
    while process.poll() is None and not has_row() and time.monotonic() < end_s:
        time.sleep(POLL_S)


def ended(process: subprocess.Popen[bytes], limit_s: float) -> int | None:
    """The exit status, after the process was told to end if need be; None if it had to be killed."""
    try:
        return process.wait(max(0.0, limit_s))
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGTERM)
    try:
        return process.wait(GRACE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        return None


def read_report(part: Part, place: Place) -> dict[str, Any] | None:
    """What a part has written; None where it has not."""
    try:
        document = json.loads(place.report(part).read_text())
    except (OSError, ValueError):
        return None
    return document if isinstance(document, dict) else None
