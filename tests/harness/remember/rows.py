"""Rows and a store to test with."""

from __future__ import annotations

from typing import Any

from assay.harness.judge.ledger import Judgement
from assay.harness.outcome import Difference, Result
from assay.harness.report.documents import Row

FACTS: dict[str, Any] = {"commit": "abc", "torch": "2.13.0", "python": "3.11"}


def row(case: str, verdict: str = "same", field: str = "values", backend: str = "mine", passes: bool = False) -> Row:
    """A row that failed in a field, or did not."""
    differences = () if verdict != "diverged" else (Difference(field, "output[0]", "off by 1"),)
    notes = ("values: known: a reason",) if passes else ()
    return Row(Result(case, "infer", backend, verdict, differences), Judgement(passes or verdict == "same", notes))
