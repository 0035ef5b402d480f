"""How errors grow along the graphs of rows whose numbers differ: kept beside the row, in the role `errors`."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from typing import Any

from assay.harness.locate.profile_worker import WORKER
from assay.harness.processes.child import sharing
from assay.harness.processes.worker import ask
from assay.harness.remember.causes import case_of
from assay.harness.remember.store import Kept, Run, Store
from assay.harness.report.documents import finite

ROLE = "errors"
NUMBERS = ("values", "gradient")
MOST_ROWS = 6
TIMEOUT_S = 60.0


def keep_errors(store: Store, run: Run, limit_s: float, say: Callable[[str], None] = lambda text: None) -> int:
    """Profiles a few rows until the time is up, and returns of how many something was kept. Rows that nothing excuses
    come first, and of each kind of failure one before another."""
    end_s, kept = time.monotonic() + limit_s, 0
    for row in rows_to_profile(store.rows(run))[:MOST_ROWS]:
        left_s = end_s - time.monotonic()
        request = request_of(row) if left_s > 0 else None
        if request is None:
            continue
        answer = ask(WORKER, request, min(TIMEOUT_S, left_s), sharing())
        if answer.lines:
            store.attach(row, ROLE, store.keep(ROLE, json.dumps(finite(list(answer.lines))).encode()))
            kept += 1
        elif answer.failure:
            say(f"{' '.join(row.key)}: errors are not profiled: {': '.join(answer.failure)}")
    return kept


def rows_to_profile(rows: list[Kept]) -> list[Kept]:
    """The rows whose numbers differ, in the order in which they are wanted."""
    differing = [row for row in rows if any(each.field in NUMBERS for each in row.result.differences)]
    seen: dict[tuple[str, str], int] = {}

    def place(row: Kept) -> tuple[bool, int]:
        kind = row.result.backend.partition(",")[0], row.kind
        seen[kind] = seen.get(kind, 0) + 1
        return row.judgement.passes, seen[kind]

    return sorted(differing, key=place)


def request_of(row: Kept) -> Mapping[str, Any] | None:
    """What the worker is asked for; None where no suite has the case."""
    if (case := case_of(row)) is None:
        return None
    return {"origin": case.origin, "case": case.name, "mode": row.result.mode, "size": "tiny", "seed": 0,
            "backend": row.result.backend}  # fmt: skip
