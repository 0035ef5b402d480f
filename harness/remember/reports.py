"""The rows in the JSON reports of `assay run`, whatever they are of, and whether each passes today."""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from assay.harness import outcome
from assay.harness.batches.batch import AS_MUCH as AS_DYNAMO
from assay.harness.judge import ledger
from assay.harness.judge.ledger import Judgement, Known
from assay.harness.outcome import Difference, Result
from assay.harness.remember.store import Run, Store
from assay.harness.report.documents import Row
from assay.harness.search.hunt import UNSETTLED
from assay.harness.search.hunt_worker import AS_MUCH

PROGRAM = "program"
"""The role of the text of a drawn program beside its row."""


@dataclass(frozen=True, slots=True)
class Reported:
    """A row of a report; of a drawn program its text, and why the hunt that drew it lets it pass."""

    result: Result
    excuse: tuple[str, ...] = ()
    program: str = ""

    def judged(self, known: Sequence[Known], today: datetime.date) -> Row:
        """The row as the ledger judges it. What the hunt has tried beside it counts, too: a program that fails in the
        same way with Dynamo alone passes."""
        judgement = ledger.judge(self.result, known, today)
        if not judgement.passes and self.excuse:
            return Row(self.result, Judgement(True, self.excuse))
        return Row(self.result, judgement)


def reported(document: Mapping[str, Any]) -> Iterator[Reported]:
    """The rows of a report that are of a case: those of a run, the failures of a hunt, batches that are as eager."""
    for failure in document.get("failures", ()):
        if isinstance(failure, dict) and "result" in failure:
            yield _drawn(failure)
    for plan in document.get("machine", ()):
        for name, failure in plan["failures"].items():
            differences = tuple(Difference(**each) for each in failure["differences"])
            backend, script = plan["plan"]["backend"], failure["script"]
            yield Reported(Result(f"machine.{name}"[:200], "train", backend, "diverged", differences, detail=script))
    for row in document.get("batches", ()):
        yield Reported(outcome.read(row))
    for row in document.get("results", ()):
        if "case" in row and "verdict" in row and "differences" in row:
            yield _ran(row)


def _ran(row: Mapping[str, Any]) -> Reported:
    """A row of a run, or the sample of a batch. What Dynamo alone does as well passes, as in the batch's own report."""
    result = outcome.read({key: value for key, value in row.items() if key not in ("passes", "notes")})
    is_batchs = result.detail.endswith(AS_DYNAMO) or result.verdict in UNSETTLED
    return Reported(result, tuple(row["notes"]) if row.get("passes") and is_batchs else ())


def _drawn(failure: Mapping[str, Any]) -> Reported:
    """A failure of a hunt. An excuse of the ledger is not taken over: the ledger may have changed."""
    is_hunts = failure.get("alone") == AS_MUCH or failure["result"]["verdict"] in UNSETTLED
    excuse = tuple(failure["notes"]) if failure.get("passes") and is_hunts else ()
    return Reported(outcome.read(failure["result"]), excuse, failure.get("source", ""))


def keep_programs(store: Store, run: Run, found: Sequence[Reported]) -> None:
    """Keeps the texts of drawn programs beside their rows: what locates causes makes repros of them."""
    texts = {(each.result.case, each.result.mode, each.result.backend): each.program for each in found}
    for row in store.rows(run) if any(texts.values()) else ():
        if text := texts.get(row.key):
            store.attach(row, PROGRAM, store.keep(PROGRAM, text.encode()))
