"""The JSON report of a self-test's banks: written behind each fault, read by a run that goes on where it was cut."""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from assay.harness.report import documents as report
from assay.harness.selftest.record import Kill, Tried

SCHEMA = 1
ALIKE = ("torch", "size", "seed", "level")
"""What a report must have been made with for a run to go on behind it."""


@dataclass(frozen=True, slots=True)
class Kept:
    """Where the report of a run is kept, if anywhere, and what it says of the run beside its results."""

    path: Path | None
    facts: Mapping[str, Any]

    def before(self) -> list[Tried]:
        """What an earlier run wrote there; nothing where there is none.

        Raises: ValueError for a report of another torch, or of other rows.
        """
        if self.path is None or not self.path.is_file():
            return []
        found = json.loads(self.path.read_text())
        for name in ALIKE:
            if found["environment"].get(name) != self.facts.get(name):
                raise ValueError(f"its {name} is {found['environment'].get(name)}, and not {self.facts.get(name)}")
        return [_of_data(each) for each in found["results"]]

    def write(self, found: Sequence[Tried], interrupted: bool) -> None:
        """Writes what there is so far."""
        if self.path is not None:
            report.write_json(self.path, document(found, self.facts, interrupted))

    def add(self, found: Sequence[Tried]) -> None:
        """Writes what there is so far to a file: should the run be cut, it holds these."""
        if self.path != report.STDOUT:
            self.write(found, interrupted=True)


def _of_data(data: Mapping[str, Any]) -> Tried:
    own = {field.name: data[field.name] for field in dataclasses.fields(Tried)}
    return Tried(**own | {"by": Kill(**data["by"]) if data["by"] else None})


def totals(found: Sequence[Tried]) -> dict[str, int]:
    """How many faults and controls there were, and what became of them."""
    faults = [each for each in found if not each.is_right]
    count = Counter(killed=0, explained=0, unexplained=0)
    count.update("killed" if each.killed else "explained" if each.reason else "unexplained" for each in faults)
    controls = [each for each in found if each.is_right]
    accused = sum(each.killed for each in controls)
    return {"faults": len(faults), **count, "controls": len(controls), "accused": accused}


def document(found: Sequence[Tried], facts: Mapping[str, Any], interrupted: bool) -> dict[str, Any]:
    """Totals, and a record for each fault and each control."""
    results = [{**dataclasses.asdict(each), "passes": each.passes} for each in found]
    kinds = {kind: totals([each for each in found if each.kind == kind]) for kind in {each.kind for each in found}}
    return report.finite(  # type: ignore[no-any-return]
        {
            "schema": SCHEMA,
            "environment": dict(facts),
            "interrupted": interrupted,
            "totals": totals(found),
            "kinds": dict(sorted(kinds.items())),
            "results": results,
        }
    )
