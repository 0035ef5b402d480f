"""The bank of bugs of our own compiler: each runs in processes of its own, on a checkout that has the bug in it.

A row kills a bug if it neither is `same` nor in the ledger, and passes without the bug. That is looked at once a row,
when a bug first fails it.
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
from assay.harness.selftest.mutant_rows import TESTS, Row, marks_of, near_rows, slice_rows
from assay.harness.selftest.mutants import GPU, Mutant, read
from assay.harness.selftest.record import Asked, Kill, Member, Tried

WORKER = "assay.harness.selftest.mutant_worker"
CONTROL = Member("unchanged", "controls", "The compiler as it is.", is_right=True)


class NothingRan(RuntimeError):
    """A process that ended before its first row."""


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
        start = time.perf_counter()
        mutant = self._mutants.get(member.name)
        kill, rows = None, 0
        with changed_tree(mutant) as tree:
            for part, made in parts_of(mutant, asked.level):
                kill, count = self._killed(tree, made(), asked.timeout_s)
                rows += count
                if kill is not None:
                    kill = replace(kill, part=part)
                    break
        seconds = time.perf_counter() - start
        killed = kill is not None
        return Tried(
            self.name, member.name, member.kind, member.wrong, killed, kill, seconds, rows, is_right=member.is_right
        )

    def _killed(self, tree: Path, rows: Sequence[Row], timeout_s: float) -> tuple[Kill | None, int]:
        """What kills the compiler of a tree, if a row does, and how many rows ended."""
        begun = 0
        while begun < len(rows):
            try:
                failed = first_failed(tree, rows[begun:], timeout_s)
            except NothingRan as ended:  # the bug does not let the compiler be imported
                failed = Failed(0, Kill(str(rows[begun]), rows[begun].mode, "crash", detail=str(ended)))
            if failed is None:
                return None, len(rows)
            begun += failed.place + 1
            if self._passes_unchanged(rows[begun - 1], timeout_s):
                return failed.kill, begun
        return None, len(rows)

    def _passes_unchanged(self, row: Row, timeout_s: float) -> bool:
        """Whether a row passes without a bug: run by the first who asks, while others try other rows."""
        with self._lock:
            is_first = row not in self._passes
            passes = self._passes.setdefault(row, Future())
        if is_first:
            try:
                with changed_tree(None) as tree:
                    passes.set_result(first_failed(tree, [row], timeout_s) is None)
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
    yield "slice", lambda: slice_rows(level, backend)


def first_failed(tree: Path, rows: Sequence[Row], timeout_s: float) -> Failed | None:
    """The first row that does not pass with the compiler of a tree.

    Raises: NothingRan if the process ended before its first row; RuntimeError if it ran another compiler.
    """
    with environment_of(tree, rows[0].backend) as environment:
        answer = ask(WORKER, {"rows": [astuple(row) for row in rows]}, timeout_s, environment)
    ran = [line["compiler"] for line in answer.lines if "compiler" in line]
    begun = [line["begins"] for line in answer.lines if "begins" in line]
    if not begun:
        raise NothingRan(f"no row began: {answer.failure}")
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
