"""The process in which a backend is tried: rows one by one through `run_case`, until one is not `same`.

    python -m assay.harness.selftest.rows_worker REQUEST ANSWER

The request: `{"backend", "size", "seed", "rows": [[origin, case, mode], ...]}`. The answer has a line for each row
as it begins, `{"begins": [case, mode]}`, and one when it has ended, `{"row": {...}}`; so a row that ends the process
is known.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from assay.harness.calls.cycles import set_aside
from assay.harness.case import Case
from assay.harness.discover import discover
from assay.harness.processes.worker import answering
from assay.harness.report.documents import finite
from assay.harness.run import RunRequest, run_case


def try_rows(request: Mapping[str, Any], say: Callable[[dict[str, Any]], None]) -> None:
    """Runs the rows of a request in order and says how each ended; the first that is not `same` is the last."""
    for origin, name, mode in request["rows"]:
        say({"begins": [name, mode]})
        set_aside()
        result = run_case(
            _case(origin, name), mode, request["backend"], RunRequest(size=request["size"], seed=request["seed"])
        )
        say({"row": finite(dataclasses.asdict(result))})
        if result.verdict != "same":
            return


def _case(origin: str, name: str) -> Case:
    (found,) = [case for case in discover((origin,)) if case.name == name]
    return found


if __name__ == "__main__":
    answering(try_rows)
