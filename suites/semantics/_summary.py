"""Reports of this suite as one table: `python -m assay.suites.semantics._summary OUT.json REPORT.json...`.

Reads reports that `assay run semantics --json` wrote. Prints them as a table with a row a group and a column a backend,
static and dynamic shapes together. Writes what the table says, with the name of every row that is not `same`.
"""

from __future__ import annotations

import json
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from assay.harness.discover import discover
from assay.harness.outcome import VERDICTS
from assay.harness.report.documents import write_json
from assay.harness.report.triage import read

IN_VERSIONS = "diverged in versions only"

Counts = dict[str, dict[str, Counter[str]]]
"""Verdicts by backend and group."""


def groups() -> dict[str, str]:
    """The group of every case: the words of its module's name."""
    return {case.name: case.origin.rpartition(".")[2].strip("_").replace("_", " ") for case in discover(["semantics"])}


def backend_of(row: Mapping[str, Any]) -> str:
    """The backend's name without its settings."""
    return str(row["backend"]).partition(",")[0]


def counted(rows: Iterable[Mapping[str, Any]], group_of: Mapping[str, str]) -> Counts:
    """Rows of cases that the suite no longer has are counted as `gone`."""
    counts: Counts = defaultdict(lambda: defaultdict(Counter))
    for row in rows:
        counts[backend_of(row)][group_of.get(row["case"], "gone")][verdict_of(row)] += 1
    return counts


def verdict_of(row: Mapping[str, Any]) -> str:
    """The verdict; apart from the others where nothing differs but by how much versions grew."""
    fields = {difference["field"] for difference in row["differences"]}
    return IN_VERSIONS if row["verdict"] == "diverged" and fields == {"version"} else str(row["verdict"])


def table(counts: Counts) -> str:
    """Markdown: how many rows of each group are `same`, then how many there are of each verdict."""
    backends = list(counts)
    names = sorted({group for by_group in counts.values() for group in by_group})
    lines = ["| | " + " | ".join(backends) + " |", "|---|" + "---|" * len(backends)]
    lines += [_line(group, [_same_of_all(counts[backend][group]) for backend in backends]) for group in names]
    totals = {backend: sum(counts[backend].values(), Counter[str]()) for backend in backends}
    lines.append(_line("**all**", [_same_of_all(totals[backend]) for backend in backends]))
    for verdict in (IN_VERSIONS, *VERDICTS[1:]):
        if any(total[verdict] for total in totals.values()):
            lines.append(_line(verdict, [str(totals[backend][verdict]) for backend in backends]))
    return "\n".join(lines)


def _line(name: str, cells: Sequence[str]) -> str:
    return f"| {name} | " + " | ".join(cells) + " |"


def _same_of_all(counts: Mapping[str, int]) -> str:
    return f"{counts.get('same', 0)}/{sum(counts.values())}"


def document(reports: Sequence[Mapping[str, Any]], counts: Counts) -> dict[str, Any]:
    """The numbers of the table, the machine, and which rows are not `same`, with the fields that differ."""
    rows = [row for report in reports for row in report["results"] if row["verdict"] != "same"]
    return {
        "environment": reports[0]["environment"],
        "verdicts": {backend: {group: dict(found) for group, found in of.items()} for backend, of in counts.items()},
        "not_same": {f"{row['case']} {row['mode']} {row['backend']}": _why(row) for row in rows},
    }


def _why(row: Mapping[str, Any]) -> str:
    return " ".join([row["verdict"], *sorted({difference["field"] for difference in row["differences"]})])


def main(out: Path, paths: Sequence[Path]) -> None:
    reports = [read(path) for path in paths]
    counts = counted((row for report in reports for row in report["results"]), groups())
    write_json(out, json.loads(json.dumps(document(reports, counts))))
    print(table(counts))


if __name__ == "__main__":
    main(Path(sys.argv[1]), [Path(argument) for argument in sys.argv[2:]])
