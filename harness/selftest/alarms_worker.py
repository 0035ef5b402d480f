"""The process in which a right backend is tried: all rows, one by one, whatever each comes to.

    python -m assay.harness.selftest.alarms_worker REQUEST ANSWER

The request: `{"rows": [[what, origin, name, mode, backend], ...]}`. The answer has a line for each row as it begins,
`{"begins": [name, mode]}`. A line for each verdict that is not `same` follows: `{"row": {...}, "passes": false}`. One
line ends the row: `{"ended": COUNT}`, with how many verdicts there were. What passes is in the ledger, or is Dynamo's.
"""

from __future__ import annotations

import dataclasses
import logging
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from assay.harness.batches.batch import ALONE, NOTHING, How, run_batch
from assay.harness.calls.cycles import set_aside
from assay.harness.judge import ledger
from assay.harness.outcome import Result
from assay.harness.processes import many_compiles
from assay.harness.processes.worker import answering
from assay.harness.report.documents import finite
from assay.harness.search.generated import kind_of
from assay.harness.selftest.mutant_rows import BATCH, Row
from assay.harness.selftest.mutant_worker import RUNS, SEED, passes_as, some, unit_of


def try_rows(request: Mapping[str, Any], say: Callable[[dict[str, Any]], None]) -> None:
    """Runs all rows in order and says how each ended."""
    known = ledger.read()
    for row in (Row(*entry) for entry in request["rows"]):
        say({"begins": [str(row), row.mode]})
        set_aside()
        count, failures = judged(row)
        for result in failures:
            passes = passes_as(row.what, result, known) or is_dynamos(row, result)
            say({"row": finite(dataclasses.asdict(result)), "passes": passes})
        say({"ended": count})


def is_dynamos(row: Row, result: Result) -> bool:
    """Whether Dynamo with eager behind it fails in the same way. Of a sample of a batch the row itself says so."""
    if row.what == BATCH or row.backend.split(",")[0] == NOTHING:
        return False
    dynamic = ",dynamic" if "dynamic" in row.backend.split(",") else ""
    alone = RUNS[row.what](dataclasses.replace(row, backend=ALONE + dynamic))
    return any(each.verdict != "same" and kind_of(each).includes(kind_of(result)) for each in alone)


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
    many_compiles.measure_no_guards()
    answering(try_rows)
