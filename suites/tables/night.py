"""What a night on torch's own backends found: a table of its causes.

python -m assay.suites.tables.night VERDICT.json    keeps what `assay triage --json` says, as far as the table needs it
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from assay.suites.tables.markdown import literal, table
from assay.suites.tables.measured import RESULTS, measured

FILE = "night_on_torchs_backends_2cores.json"
LOCATED = ("located_16cores.json", "located_passes_2cores.json")
KEPT = ("kind", "confidence", "failed", "runs", "calls", "form", "example")
FACTS = ("date", "torch", "python", "cpu", "cores")


def causes_of_a_night() -> str:
    """Every cause, those of most rows first: rows by backend, the first rung, the repro."""
    rows = [_row(cause) for cause in _ordered(measured(FILE)["causes"])]
    return table(("cause", "rows", "first rung that differs", "repro"), rows)


def night_in_words() -> str:
    """When and where it ran, and its sentence."""
    night = measured(FILE)
    where = night["environment"]
    return f"{night['sentence']}. torch {where['torch']}, {where['cpu']}, {where['cores']} cores, {where['date'][:10]}."


def located() -> str:
    """What `assay selftest --locate` found of known bugs, in each of its records."""
    documents = [measured(name) for name in LOCATED]
    columns = [_counts(document["totals"]) for document in documents]
    rows = [(what, *(column[what] for column in columns)) for what in columns[0]]
    return table(("of known bugs", *(_where(document["environment"]) for document in documents)), rows)


def _counts(counts: Mapping[str, Any]) -> dict[str, str]:
    size = counts["mutants"]
    return {
        "first rung named rightly": f"{counts['rung_right']} of {size}",
        "pass named rightly": f"{counts['pass_right']} of {counts['passes']}",
        "made at most ten calls": f"{counts['small']} of {size}",
        "repro that fails in each of three processes": f"{counts['verified']} of {size}",
        "shown by nothing near them, and not located": str(counts.get("not_shown", "not counted")),
        "within 120 s of the clock": f"{counts['in_time']} of {size}",
        "within 120 s of CPU": f"{counts['in_cpu_time']} of {size}",
        "the longest": f"{counts['longest_s']:.0f} s, {counts['longest_cpu_s']:.0f} s of CPU",
    }


def _where(environment: Mapping[str, Any]) -> str:
    return f"torch {environment['torch']}, {environment['cores']} cores, {environment['date'][:10]}"


def _ordered(causes: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    return sorted(causes, key=lambda cause: -sum(cause["by_backend"].values()))


def _row(cause: Mapping[str, Any]) -> tuple[str, ...]:
    body = cause["body"]
    rows = ", ".join(f"{backend} {count}" for backend, count in cause["by_backend"].items())
    repro = f"{body['calls']} calls, fails {body['failed']} of {body['runs']}" if "calls" in body else "none"
    name = cause["name"].partition(": ")[2] or cause["name"]
    return literal(name[:90]), rows, cause["rung"] or "not located", repro


def keep(path: Path) -> None:
    document = json.loads(path.read_text())
    causes = [
        {"name": cause["name"], "state": cause["state"], "rung": cause["rung"], "by_backend": cause["by_backend"],
         "body": {name: cause["body"][name] for name in KEPT if name in cause["body"]}}
        for cause in document["causes"]
    ]  # fmt: skip
    facts = {name: document["run"]["environment"][name] for name in FACTS}
    kept = {"schema": 1, "environment": facts, "sentence": document["sentence"], "rows": document["rows"]}
    (RESULTS / FILE).write_text(json.dumps(kept | {"causes": causes}, indent=1) + "\n")


if __name__ == "__main__":
    keep(Path(sys.argv[1]))
