"""What a night on torch's own backends found: a table of its causes.

python -m assay.suites.tables.night VERDICT.json    keeps what `assay triage --json` says, as far as the table needs it
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from assay.harness.selftest.locate_bank import of_data
from assay.suites.tables.markdown import literal, table
from assay.suites.tables.measured import RESULTS, measured

FILE = "night_on_torchs_backends_2cores.json"
LOCATED = (
    "located_16cores.json", "located_16cores_second.json", "located_passes_2cores.json",
    "located_passes_2cores_second.json", "located_backends_2cores.json",
)  # fmt: skip
ASKED = {
    "first rung named rightly": "85 %",
    "pass named rightly": "80 %",
    "made at most ten calls": "80 %",
    "repro that fails in each of three processes": "90 %",
    "shown by nothing, or not done in time, and not located": "",
    "within 120 s of the clock": "",
    "within 120 s of CPU": "",
    "the longest": "",
}
"""What is counted, and how much of it issue 36 asks for."""
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
    """What `assay selftest --locate` found of known bugs, in each of its records, beside what is asked for."""
    documents = _records()
    columns = [_counts(document["totals"]) for document in documents]
    rows = [(what, asked, *(column[what] for column in columns)) for what, asked in ASKED.items()]
    return table(("of known bugs", "at least", *map(_record, documents)), rows)


def located_missed() -> str:
    """The bugs of which something was not found rightly, in each record."""
    rows = [_missed(each, _where(document["environment"])) for document in _records() for each in document["results"]]
    return table(
        ("bug", "in", "first rung", "right is", "calls", "repro fails", "record"), [row for row in rows if row]
    )


def _records() -> list[Mapping[str, Any]]:
    """Those that there are: a record of all bugs needs no other one beside it."""
    return [measured(name) for name in LOCATED if (RESULTS / name).is_file()]


def _record(document: Mapping[str, Any]) -> str:
    """Of what, where and when a record was made, and how many of its bugs were tried again elsewhere or later."""
    again, of = document.get("again"), f"{document['of']}, " if "of" in document else ""
    told = f"; {len(again['names'])} of them again with {_where(again['environment'])}" if again else ""
    return of + _where(document["environment"]) + told


def _missed(data: Mapping[str, Any], where: str) -> tuple[str, ...]:
    found = of_data(data)
    if not found.is_shown or (found.is_rung_right and found.is_small and found.is_verified):
        return ()
    calls = "not shrunk" if found.calls is None else str(found.calls)
    repro = f"{found.failures} of {found.runs}" if found.runs else "none"
    rungs = [name.rpartition(":")[2] for name in (found.rung or "none", ", ".join(found.expected))]
    return found.name, found.file, *rungs, calls, repro, where


def _counts(counts: Mapping[str, Any]) -> dict[str, str]:
    size = counts["mutants"]
    figures = (
        share_of(counts["rung_right"], size),
        share_of(counts["pass_right"], counts["passes"]),
        share_of(counts["small"], size),
        share_of(counts["verified"], size),
        str(counts.get("not_shown", "not counted")),
        share_of(counts["in_time"], size),
        share_of(counts["in_cpu_time"], size),
        f"{counts['longest_s']:.0f} s, {counts['longest_cpu_s']:.0f} s of CPU",
    )
    return dict(zip(ASKED, figures, strict=True))


def share_of(some: int, count: int) -> str:
    """`49 of 52 (94 %)`, rounded down"""
    return f"{some} of {count} ({100 * some // count} %)" if count else "none tried"


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
