"""The bank of bugs of our own compiler: each runs in processes of its own, on a checkout that has the bug in it.

A row kills a bug if it neither is `same` nor in the ledger, and passes without the bug. That is looked at once a row,
when a bug first fails it.

The rows of a bug have one limit of time together, which kills nothing: the row that is under way then is run by itself.
What is left counts as not tried.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import astuple, dataclass, replace
from pathlib import Path

import torch

from assay.harness import outcome
from assay.harness.processes.worker import Answer, ask
from assay.harness.selftest.backends_bank import kill_of
from assay.harness.selftest.changed_tree import changed_tree, environment_of
from assay.harness.selftest.mutant_rows import SLICES, TESTS, Row, marks_of, near_rows, slice_rows
from assay.harness.selftest.mutants import GPU, Mutant, read
from assay.harness.selftest.record import Asked, Kill, Member, Tried

WORKER = "assay.harness.selftest.mutant_worker"
CONTROL = Member("unchanged", "controls", "The compiler as it is.", is_right=True)


ALONE_S = 900.0
"""How long one row may take by itself. A file of tests takes the most."""


class NothingRan(RuntimeError):
    """A process that ended before its first row. `verdict` is `timeout` or `crash`."""

    def __init__(self, told: str, verdict: str) -> None:
        super().__init__(told)
        self.verdict = verdict


@dataclass(frozen=True, slots=True)
class Failed:
    """The row, by its place among those asked for, that did not pass, and what it showed."""

    place: int
    kill: Kill


class CompilerMutants:
    """The bank `compiler`."""

    name = "compiler"

    def __init__(self) -> None:
        self._mutants = {mutant.name: mutant for mutant in read()}
        self._passes: dict[Row, Future[bool]] = {}
        self._lock = threading.Lock()

    def members(self) -> Sequence[Member]:
        """The control, and the mutants that can run on this machine."""
        return (CONTROL, *(Member(m.name, m.kind, m.wrong) for m in self._mutants.values() if can_run(m)))

    def tried(self, member: Member, asked: Asked) -> Tried:
        """Raises: NothingRan if the compiler as it is runs no row; DiscoverError for rows that do not exist;
        MutantError for a mutant that does not apply."""
        start = time.monotonic()
        mutant = self._mutants.get(member.name)
        kill, ended, left = None, 0, 0
        with changed_tree(mutant) as tree:
            for part, made in parts_of(mutant, asked.level):
                rows = made()
                kill, count = self.killed(tree, rows, start + asked.timeout_s)
                ended += count
                left += 0 if kill else len(rows) - count
                if kill is not None:
                    kill = replace(kill, part=part)
                    break
        fault = (self.name, member.name, member.kind, member.wrong)
        seconds = time.monotonic() - start
        return Tried(*fault, kill is not None, kill, seconds, ended, left=left, is_right=member.is_right)

    def killed(self, tree: Path, rows: Sequence[Row], until: float) -> tuple[Kill | None, int]:
        """What kills the compiler of a tree, if a row does before the time `until`, and how many rows ended. The last
        of these is the one that does."""
        begun = 0
        while begun < len(rows) and (left_s := until - time.monotonic()) > 0:
            failed = failed_of(tree, rows[begun:], left_s)
            if failed is None:
                return None, len(rows)
            begun += failed.place + 1
            if failed.kill.verdict == "timeout":
                failed = failed_of(tree, rows[begun - 1 : begun], ALONE_S)
            if failed is not None and self._passes_unchanged(rows[begun - 1]):
                return failed.kill, begun
        return None, begun

    def _passes_unchanged(self, row: Row) -> bool:
        """Whether a row passes without a bug: run by the first who asks, while others try other rows."""
        with self._lock:
            is_first = row not in self._passes
            passes = self._passes.setdefault(row, Future())
        if is_first:
            try:
                with changed_tree(None) as tree:
                    passes.set_result(first_failed(tree, [row], ALONE_S) is None)
            except BaseException as error:
                passes.set_exception(error)
        return passes.result()


def can_run(mutant: Mutant) -> bool:
    """Whether this machine has what it takes to run the changed part."""
    return mutant.needs != GPU or torch.cuda.is_available()


def parts_of(mutant: Mutant | None, level: str) -> Iterator[tuple[str, Callable[[], Sequence[Row]]]]:
    """What to try a mutant on, part by part: what is near to it, the tests of its part, a slice of every suite."""
    backend = mutant.backend if mutant else "assay"
    if mutant is not None:
        yield "near", lambda: near_rows(mutant.near, backend)
        yield TESTS, lambda: [Row(TESTS, marks_of(level), name, "", backend) for name in mutant.tests]
    yield "slice", lambda: slice_rows(SLICES[level], backend)


def failed_of(tree: Path, rows: Sequence[Row], timeout_s: float) -> Failed | None:
    """The first row that does not pass; the first of all where the compiler of the tree cannot be imported."""
    try:
        return first_failed(tree, rows, timeout_s)
    except NothingRan as ended:
        return Failed(0, Kill(str(rows[0]), rows[0].mode, ended.verdict, detail=str(ended)))


def first_failed(tree: Path, rows: Sequence[Row], timeout_s: float) -> Failed | None:
    """The first row that does not pass with the compiler of a tree.

    Raises: NothingRan if the process ended before its first row; RuntimeError if it ran another compiler.
    """
    with environment_of(tree, rows[0].backend) as environment:
        answer = ask(WORKER, {"rows": [astuple(row) for row in rows]}, timeout_s, environment)
    ran = [line["compiler"] for line in answer.lines if "compiler" in line]
    begun = [line["begins"] for line in answer.lines if "begins" in line]
    if not begun:
        raise NothingRan(f"no row began: {answer.failure}", answer.failure[0] if answer.failure else "crash")
    if ran != [str(tree / "assay" / "compiler")]:
        raise RuntimeError(f"another compiler ran: {ran}, and not that of {tree}")
    return _failed(answer, begun)


def _failed(answer: Answer, begun: Sequence[tuple[str, str]]) -> Failed | None:
    last = len(begun) - 1
    ended = [line for line in answer.lines if "row" in line]
    if ended and not ended[-1]["passes"]:
        return Failed(last, kill_of(outcome.read(ended[-1]["row"])))
    if answer.failure is None:
        return None
    verdict, said = answer.failure
    case, mode = begun[-1]
    return Failed(last, Kill(case, mode, verdict, detail=said))
