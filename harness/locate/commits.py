"""The commit at which a case began to fail: halving over a history, in a checkout of its own, with repeats.

A revision that cannot be tried (it does not import, or the case is not there) is skipped, and a neighbour tried in its
place. What is found is then a range, if all that is left in it was skipped.
"""

from __future__ import annotations

import json
import math
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import assay
from assay.harness.processes.child import sharing

GOOD, BAD, UNTRIED = "good", "bad", "untried"
TIMEOUT_S = 600.0

Try = Callable[[str], str]
"""What becomes of a revision: good, bad or untried."""


@dataclass(frozen=True, slots=True)
class Blamed:
    """The first bad commit, the last good one, and what lies between them and could not be tried."""

    bad: str
    good: str
    between: tuple[str, ...]
    tried: dict[str, str]

    def sentence(self) -> str:
        skipped = f"; {len(self.between)} commits between them could not be tried" if self.between else ""
        return f"first bad commit {self.bad}, after {self.good}{skipped} ({len(self.tried)} tried)"


class HistoryError(ValueError):
    """A range that has no border: its ends are not one good and one bad."""


def first_bad(commits: Sequence[str], attempt: Try, say: Callable[[str], None] = lambda text: None) -> Blamed:
    """Halves a history, of which the first commit is good and the last bad.

    Raises: HistoryError if they are not.
    """
    tried: dict[str, str] = {}

    def status(place: int) -> str:
        commit = commits[place]
        if commit not in tried:
            tried[commit] = attempt(commit)
            say(f"{commit} {tried[commit]}")
        return tried[commit]

    low, high = 0, len(commits) - 1
    if status(low) != GOOD or status(high) != BAD:
        raise HistoryError(f"{commits[0]} is {tried[commits[0]]} and {commits[-1]} {status(high)}: no border to find")
    while (place := _next(low, high, status)) is not None:
        low, high = (place, high) if status(place) == GOOD else (low, place)
    return Blamed(commits[high], commits[low], tuple(commits[low + 1 : high]), tried)


def _next(low: int, high: int, status: Callable[[int], str]) -> int | None:
    """The place nearest to the middle that can be tried."""
    middle = (low + high) / 2
    for place in sorted(range(low + 1, high), key=lambda place: abs(place - middle)):
        if status(place) != UNTRIED:
            return place
    return None


def history(repository: Path, good: str, bad: str) -> list[str]:
    """The commits from one to another, both included, along the first parents.

    Raises: HistoryError for names that git does not know.
    """
    said = _git(repository, "rev-list", "--first-parent", "--reverse", "--abbrev-commit", f"{good}..{bad}")
    start = _git(repository, "rev-parse", "--short", good)
    return [*start.split(), *said.split()]


def _git(repository: Path, *arguments: str) -> str:
    done = subprocess.run(["git", "-C", str(repository), *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        raise HistoryError(done.stderr.strip())
    return done.stdout


@contextmanager
def checkout(repository: Path) -> Iterator[Callable[[str], Path]]:
    """A clone beside the repository, and what puts it at a commit."""
    with tempfile.TemporaryDirectory(prefix="assay-bisect-") as name:
        tree = Path(name) / "tree"
        _git(repository, "clone", "--quiet", "--shared", "--no-checkout", str(repository), str(tree))

        def at(commit: str) -> Path:
            _git(tree, "checkout", "--quiet", "--force", commit)
            for cache in tree.rglob("__pycache__"):
                shutil.rmtree(cache, ignore_errors=True)
            return tree

        yield at


@dataclass(frozen=True, slots=True)
class Asked:
    """What is run at each revision, and how often."""

    case: str
    mode: str
    backend: str
    repeats: int

    def rows(self, tree: Path) -> list[dict[str, Any]]:
        """A row for each time, by the command of the checkout in `tree`."""
        return [_row(tree, self) for _ in range(self.repeats)]


def by_verdict(at: Callable[[str], Path], asked: Asked, say: Callable[[str], None] = lambda text: None) -> Try:
    """Runs a case at a revision: bad if it fails in any of the repeats. Why one cannot be tried is said."""

    def attempt(commit: str) -> str:
        rows = asked.rows(at(commit))
        verdicts = {str(row.get("verdict", "no-oracle")) for row in rows}
        if "no-oracle" in verdicts:
            say(f"{commit}: {rows[0].get('why') or 'nothing settles the case'}")
            return UNTRIED
        return GOOD if verdicts <= {"same", "fell-back", "reference-unstable"} else BAD

    return attempt


def by_number(at: Callable[[str], Path], asked: Asked, name: str, ends: tuple[str, str]) -> Try:
    """Measures a case by a revision's own `assay run`: bad if it is nearer to the bad end than to the good one.

    `call` is a call's time over eager's beside it, so that the machine does not matter; `compile` is the first call's.
    Raises: HistoryError if the bad end is not slower by `LEAST`.
    """

    def number(commit: str) -> float | None:
        found = [value for row in asked.rows(at(commit)) if (value := NUMBERS[name](row)) is not None]
        return statistics.median(found) if found else None

    good, bad = (number(end) for end in ends)
    if good is None or bad is None or bad < LEAST * good:
        raise HistoryError(f"{name} of {ends[0]} is {good}, of {ends[1]} {bad}: not slower by {LEAST - 1:.0%}")
    border = math.sqrt(good * bad)

    def attempt(commit: str) -> str:
        found = {ends[0]: good, ends[1]: bad}.get(commit) or number(commit)
        return UNTRIED if found is None else GOOD if found < border else BAD

    return attempt


def _relative(row: Mapping[str, Any]) -> float | None:
    ms, eager_ms = row.get("ms"), row.get("eager_ms")
    return ms / eager_ms if ms and eager_ms else None


LEAST = 1.03
"""How much slower a bad end has to be."""
NUMBERS: Mapping[str, Callable[[Mapping[str, Any]], float | None]] = {
    "call": _relative,
    "compile": lambda row: row.get("compile_s"),
}


def command_of(tree: Path, asked: Asked) -> tuple[list[str], str]:
    """What runs the case at a revision, and the paths to import from: the revision's own `assay`, where it has one.
    Else the history is of somebody's backend, which this installation runs."""
    asks = ["run", case_in(tree, asked.case), "--mode", asked.mode, "--backend", asked.backend, "--shapes", "static"]
    if (tree / "harness" / "__main__.py").is_file():
        return [sys.executable, "-m", "harness", *asks], str(tree)
    installed = str(Path(str(assay.__file__)).parents[1])
    return [sys.executable, "-m", "assay", *asks], os.pathsep.join([str(tree), installed])


def case_in(tree: Path, case: str) -> str:
    """The case's file as it is at the revision, or as it is here where the revision has none."""
    file, separator, name = case.partition("::")
    if not separator:
        return case
    path = tree / file if (tree / file).is_file() else Path(file).resolve()
    return f"{path}::{name}"


def _row(tree: Path, asked: Asked) -> dict[str, Any]:
    """The row of a case as the checkout's own command gives it. Where it gives none, `why` is what it said last."""
    with tempfile.TemporaryDirectory(prefix="assay-bisect-") as folder:
        path = Path(folder) / "row.json"
        command, paths = command_of(tree, asked)
        caches = {"ASSAY_CACHE": folder, "PYTHONPATH": paths, "PYTHONSAFEPATH": "1"}
        environment = {**os.environ, **sharing(), **caches}
        try:
            done = subprocess.run(
                [*command, "--json", str(path)], cwd=folder, env=environment, capture_output=True, text=True,
                timeout=TIMEOUT_S, check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return {"verdict": "timeout"}
        rows: list[dict[str, Any]] = json.loads(path.read_text())["results"] if _has_text(path) else []
    return rows[0] if rows else {"why": " ".join(done.stderr.split("\n\n")[-1].split())}


def _has_text(path: Path) -> bool:
    return path.is_file() and path.stat().st_size > 0
