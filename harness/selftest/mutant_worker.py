"""The process in which a bug of the compiler is tried: rows one by one, until one neither is `same` nor in the ledger.

    python -m assay.harness.selftest.mutant_worker REQUEST ANSWER

The request: `{"rows": [[what, origin, name, mode, backend], ...]}`. The answer begins with the folder of the compiler
that runs, `{"compiler": "..."}`; then come, as of `rows_worker`, a line for each row as it begins and one as it ends:
`{"row": {...}, "passes": true}`.
"""

from __future__ import annotations

import dataclasses
import datetime
import functools
import importlib
import logging
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from assay import compiler
from assay.harness.batches.batch import How, run_batch
from assay.harness.batches.batch_report import judged
from assay.harness.batches.batch_run import Shard, Unit, plan
from assay.harness.batches.sample import Sample
from assay.harness.calls.cycles import set_aside
from assay.harness.case import MODES, SHAPES
from assay.harness.discover import discover
from assay.harness.judge import ledger
from assay.harness.outcome import Result
from assay.harness.processes.worker import answering
from assay.harness.report.documents import finite
from assay.harness.run import RunRequest, run_case
from assay.harness.search.hunt_worker import tried
from assay.harness.selftest.mutant_rows import BATCH, CASE, PROGRAM, TESTS, Row, hashed

SEED = 0
MOST = 8
"""How many samples of a batch."""


def try_rows(request: Mapping[str, Any], say: Callable[[dict[str, Any]], None]) -> None:
    """Runs the rows in order and says how each ended; the first that does not pass is the last."""
    say({"compiler": str(Path(compiler.__file__).parent)})
    known = ledger.read()
    for row in (Row(*entry) for entry in request["rows"]):
        say({"begins": [str(row), row.mode]})
        set_aside()
        for result in RUNS[row.what](row):
            passes = passes_as(row.what, result, known)
            say({"row": finite(dataclasses.asdict(result)), "passes": passes})
            if not passes:
                return


def passes_as(what: str, result: Result, known: Sequence[ledger.Known]) -> bool:
    """Whether the command that the row belongs to would let it pass."""
    if what in (BATCH, PROGRAM):
        return judged(result, known).passes
    return ledger.judge(result, known, datetime.date.today()).passes


def _run_case(row: Row) -> list[Result]:
    (case,) = [case for case in discover((row.origin,)) if case.name == row.name]
    return [run_case(case, row.mode, row.backend, RunRequest(timed=False))]


def _run_program(row: Row) -> list[Result]:
    program = importlib.import_module(row.origin).draw(f"{SEED}:{row.name}")
    return [dataclasses.replace(tried(program, row.mode, row.backend), case=str(row))]


def _run_batch(row: Row) -> Iterator[Result]:
    yield from run_batch(unit_of(row).batch, How(row.backend, SEED, row.origin.rpartition(".")[2], only=some)).failures


def unit_of(row: Row) -> Unit:
    """The batch that a row names."""
    (unit,) = [unit for unit in _units(row.origin) if unit.key == row.name]
    return unit


@functools.cache
def _units(origin: str) -> tuple[Unit, ...]:
    return tuple(plan(importlib.import_module(origin).batches(), ("",), "", MODES, SHAPES, Shard()))


def some(samples: Sequence[Sample]) -> list[Sample]:
    """At most so many, in their order."""
    kept = {sample.name for sample in sorted(samples, key=lambda sample: hashed(sample.name))[:MOST]}
    return [sample for sample in samples if sample.name in kept]


def _run_tests(row: Row) -> list[Result]:
    """The first test of a file that fails, as a row."""
    failed = _Failed()
    pytest.main(["-q", "-x", "-p", "no:cacheprovider", "-m", row.origin, row.name], plugins=[failed])
    return [Result(name, row.mode, row.backend, "diverged", detail=said) for name, said in failed.found]


class _Failed:
    """Notes the tests that fail."""

    def __init__(self) -> None:
        self.found: list[tuple[str, str]] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.found.append((report.nodeid, _last_line(report.longreprtext)))

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self.found.append((report.nodeid, _last_line(report.longreprtext)))


def _last_line(text: str) -> str:
    said = [line for line in text.splitlines() if line.startswith("E ")]
    return (said or text.splitlines() or [""])[0].removeprefix("E ").strip()


RUNS: Mapping[str, Callable[[Row], Any]] = {
    CASE: _run_case, PROGRAM: _run_program, BATCH: _run_batch, TESTS: _run_tests,
}  # fmt: skip

if __name__ == "__main__":
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    answering(try_rows)
