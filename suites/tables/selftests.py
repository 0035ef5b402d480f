"""What `assay selftest` found of its banks: a table by kind, and what was run where.

python -m assay.suites.tables.selftests REPORT.json...    keeps what the table needs of the reports

A bank may come in several reports, each of some of its kinds. Of a fault in two of them the later one counts.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from assay.suites.tables.markdown import table
from assay.suites.tables.measured import RESULTS, measured

FILE = "selftest_32cores.json"
KEPT = ("bank", "name", "kind", "killed", "is_right", "reason")
FACTS = ("date", "torch", "python", "cpu", "cores")
BANKS = {"backends": "wrong backends", "compiler": "bugs of our own compiler"}


def banks() -> str:
    """How many faults of each kind were tried and killed, and the survivors."""
    rows = []
    for bank, words in BANKS.items():
        faults = [fault for fault in measured(FILE)["results"] if fault["bank"] == bank and not fault["is_right"]]
        for kind in dict.fromkeys(fault["kind"] for fault in faults):
            rows.append((words, kind.replace("_", " "), *_counts([f for f in faults if f["kind"] == kind])))
        rows.append((f"**{words}**", "**all**", *_counts(faults)))
    return table(("bank", "kind", "tried", "killed", "survived"), rows)


def banks_in_words() -> str:
    """When and where the banks were run, what was left, and which controls were accused."""
    document = measured(FILE)
    where = document["environment"]
    accused = [fault["name"] for fault in document["results"] if fault["is_right"] and fault["killed"]]
    controls = sum(fault["is_right"] for fault in document["results"])
    said = f"Accused of {controls} controls: {', '.join(f'`{name}`' for name in accused) or 'none'}."
    left = f"Of {document['bugs']} bugs of the compiler, {document['bugs_tried']} were tried before time was up."
    return f"{left} {said} torch {where['torch']}, {where['cores']} cores, {where['date'][:10]}."


def _counts(faults: Sequence[Mapping[str, Any]]) -> tuple[str, str, str]:
    survivors = [f"`{fault['name']}`: {fault['reason'] or 'no reason'}" for fault in faults if not fault["killed"]]
    return str(len(faults)), str(len(faults) - len(survivors)), "; ".join(survivors)


def keep(*reports: Path) -> None:
    """Keeps what the table needs of the reports; when and where comes from the first."""
    documents = [json.loads(path.read_text()) for path in reports]
    found = {(fault["bank"], fault["name"]): fault for document in documents for fault in document["results"]}
    results = [{name: fault[name] for name in KEPT} for fault in sorted(found.values(), key=_place)]
    mutants = (Path(__file__).resolve().parents[2] / "tests" / "mutants").glob("*.toml")
    bugs = sum(path.read_text().count("[[mutant]]") for path in mutants)
    facts = {name: documents[0]["environment"][name] for name in FACTS}
    tried = sum(fault["bank"] == "compiler" and not fault["is_right"] for fault in results)
    kept = {"schema": 1, "environment": facts, "bugs": bugs, "bugs_tried": tried, "results": results}
    (RESULTS / FILE).write_text(json.dumps(kept, indent=1) + "\n")


def _place(fault: Mapping[str, Any]) -> tuple[int, str]:
    return list(BANKS).index(fault["bank"]), fault["kind"]


if __name__ == "__main__":
    keep(*map(Path, sys.argv[1:]))
