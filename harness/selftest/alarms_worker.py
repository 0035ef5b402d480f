"""The process in which a right backend is tried: all rows, one by one, whatever each comes to.

    python -m assay.harness.selftest.alarms_worker REQUEST ANSWER

The request: `{"rows": [[what, origin, name, mode, backend], ...]}`. The answer has a line for each row as it begins,
`{"begins": [name, mode]}`. A line for each verdict that is not `same` follows: `{"row": {...}, "passes": false}`. One
line ends the row: `{"ended": COUNT}`, with how many verdicts there were.
"""

from __future__ import annotations

import dataclasses
import logging
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from assay.harness.batches.batch import How, run_batch
from assay.harness.judge import ledger
from assay.harness.outcome import Result
from assay.harness.processes.worker import answering
from assay.harness.report.documents import finite
from assay.harness.selftest.mutant_rows import BATCH, Row
from assay.harness.selftest.mutant_worker import RUNS, SEED, passes_as, some, unit_of


def try_rows(request: Mapping[str, Any], say: Callable[[dict[str, Any]], None]) -> None:
    """Runs all rows in order and says how each ended."""
    known = ledger.read()
    for row in (Row(*entry) for entry in request["rows"]):
        say({"begins": [str(row), row.mode]})
        count, failures = judged(row)
        for result in failures:
            told = finite(dataclasses.asdict(result))
            say({"row": told, "passes": passes_as(row.what, result, known)})
        say({"ended": count})


def judged(row: Row) -> tuple[int, Sequence[Result]]:
    """How many verdicts a row has, and those that are not `same`. A batch has one for each of its samples."""
    if row.what == BATCH:
        how = How(row.backend, SEED, row.origin.rpartition(".")[2], only=some)
        tally = run_batch(unit_of(row).batch, how)
        return tally.samples, tally.failures
    results = RUNS[row.what](row)
    return len(results), [result for result in results if result.verdict != "same"]


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    answering(try_rows)
