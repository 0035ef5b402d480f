"""The rows in the JSON reports of `assay run`, whatever they are of."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from assay.harness import outcome
from assay.harness.outcome import Difference, Result


def results_of(document: Mapping[str, Any]) -> Iterator[Result]:
    """The rows of a report that are of a case: those of a run, or the failures of a hunt."""
    for failure in document.get("failures", ()):
        if isinstance(failure, dict) and "result" in failure:
            yield outcome.read(failure["result"])
    for plan in document.get("machine", ()):
        for name, failure in plan["failures"].items():
            differences = tuple(Difference(**each) for each in failure["differences"])
            backend = plan["plan"]["backend"]
            yield Result(f"machine.{name}"[:200], "train", backend, "diverged", differences, detail=failure["script"])
    for row in document.get("results", ()):
        if "case" in row and "verdict" in row and "differences" in row:
            yield outcome.read({key: value for key, value in row.items() if key not in ("passes", "notes")})
