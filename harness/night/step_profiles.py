"""One step of a few cases taken apart, and kept for the site: stages, kernels, memory, states.

The step is that of our own compiler. What is kept is attached to the case's row, in the role `profile`.
"""

from __future__ import annotations

import datetime
import json
import time
from collections.abc import Callable, Sequence
from typing import Any

from assay.harness import outcome
from assay.harness.judge import ledger
from assay.harness.processes.child import sharing
from assay.harness.processes.worker import ask, cold_environment
from assay.harness.remember.store import Kept, Run, Store
from assay.harness.report.documents import Row

WORKER = "assay.harness.track.step_profile_worker"
ROLE = "profile"
OWN = "assay"
CASES = (("zoo.distilbert", "train"), ("zoo.convnext", "infer"), ("overhead.tiny_module", "train"))
TIMEOUT_S = 240.0


def keep_profiles(
    store: Store, run: Run, limit_s: float, cases: Sequence[tuple[str, str]] = CASES,
    say: Callable[[str], None] = lambda text: None,
) -> int:  # fmt: skip
    """Takes the cases apart until the time is up, and returns of how many something was kept."""
    end_s, kept = time.monotonic() + limit_s, 0
    for case, mode in cases:
        left_s = end_s - time.monotonic()
        if left_s <= 0:
            break
        told = profiled(case, mode, min(TIMEOUT_S, left_s), say)
        if told is not None:
            row = _row_of(store, run, told.pop("row"))
            store.attach(row, ROLE, store.keep(ROLE, json.dumps({**told, "mode": mode}).encode()))
            kept += 1
    return kept


def profiled(case: str, mode: str, limit_s: float, say: Callable[[str], None]) -> dict[str, Any] | None:
    """What the worker tells of one case; None where it tells nothing, which is said."""
    with cold_environment() as environment:
        request = {"case": case, "mode": mode, "size": "tiny"}
        answer = ask(WORKER, request, limit_s, {**environment, **sharing()})
    if answer.failure or not answer.lines:
        say(f"{case} {mode}: not taken apart: {': '.join(answer.failure or ('it said nothing',))}")
        return None
    return answer.lines[0]


def _row_of(store: Store, run: Run, data: dict[str, Any]) -> Kept:
    """The run's row of the case: the one that is there, or the one that was found beside the profile."""
    result = outcome.read(data)
    key = result.case, result.mode, OWN
    if not any(row.key == key for row in store.rows(run)):
        store.add(run, Row(result, ledger.judge(result, ledger.read(), datetime.date.today())))
    return next(row for row in store.rows(run) if row.key == key)
