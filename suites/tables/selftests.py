"""What `assay selftest` found of its banks: a table by kind, and what was run where.

python -m assay.suites.tables.selftests REPORT.json...    keeps what the table needs of the reports

`false_alarms` reads the report of `assay selftest --false-alarms` as it is.

A bank may come in several reports, each of some of its kinds. Of a fault in two of them the later one counts. Each
keeps the date of its report, its torch and its cores. The file that is kept may itself be the first report.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from assay.harness.selftest import mutants
from assay.harness.selftest import survivors as reasons
from assay.suites.tables.markdown import bullets, literal, table
from assay.suites.tables.measured import RESULTS, measured

FILE = "selftest_32cores.json"
ALARMS = "false_alarms_2cores.json"
KEPT = ("bank", "name", "kind", "killed", "is_right", "reason", "left")
FACTS = ("date", "torch", "python", "cpu", "cores")
OF_EACH = ("date", "torch", "cores")
"""What is kept of the run of each fault."""
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
    """When and where the banks were run, which controls were accused, and what no run has decided."""
    document = measured(FILE)
    results = document["results"]
    accused = [fault["name"] for fault in results if fault["is_right"] and fault["killed"]]
    controls = sum(fault["is_right"] for fault in results)
    return bullets(
        [
            *_when_and_where(fault for fault in results if not fault["is_right"]),
            f"Accused of {controls} controls: {_named(accused)}.",
            f"Bugs of the compiler that no report has, so that nothing is known: {_named(_not_tried(results))}.",
            f"Killed by the report, and excused by the table of survivors: {_named(_disputed(results))}. "
            "Such a kill may be a row that was under way when time was up.",
        ]
    )


def false_alarms() -> str:
    """How many rows of right backends are not `same`, by backend and suite, and when and where that was seen."""
    document = measured(ALARMS)
    rows = [
        (literal(each["backend"].rpartition(":")[2]), each["suite"], *map(str, each["counts"].values()))
        for each in document["results"]
    ]
    totals = document["totals"]
    facts = document["environment"]
    head = ("backend", "suite", "rows", "`same`", "unsettled", "accused", "of these wrongly", "mended")
    where = f"Torch {facts['torch']}, {facts['cores']} cores, {facts['date'][:10]}. "
    first = totals["wrong"] + totals["mended"]
    share = f"Accused wrongly: {first} of {totals['rows']} rows at first, {totals['wrong']} after mends."
    return table(head, [*rows, ("**all**", "", *map(str, totals.values()))]) + f"\n{where}{share}\n"


def _when_and_where(faults: Iterable[Mapping[str, Any]]) -> list[str]:
    """A sentence for each torch and number of cores: how many faults of each bank were tried there, and when."""
    found: dict[tuple[str, int], Counter[str]] = {}
    for fault in faults:
        counted = found.setdefault((fault["torch"], fault["cores"]), Counter())
        counted[f"{BANKS[fault['bank']]} of {fault['date']}"] += 1
    return [
        f"Tried with torch {version} on {cores} cores: {', '.join(f'{count} {words}' for words, count in of.items())}."
        for (version, cores), of in found.items()
    ]


def _named(names: Sequence[str]) -> str:
    return ", ".join(map(literal, names)) or "none"


def _not_tried(results: Sequence[Mapping[str, Any]]) -> list[str]:
    known = {fault["name"] for fault in results if fault["bank"] == "compiler"}
    return [mutant.name for mutant in mutants.read() if mutant.name not in known]


def _disputed(results: Sequence[Mapping[str, Any]]) -> list[str]:
    excused = reasons.read()
    return [fault["name"] for fault in results if fault["killed"] and (fault["bank"], fault["name"]) in excused]


def _counts(faults: Sequence[Mapping[str, Any]]) -> tuple[str, str, str]:
    alive = [
        f"`{fault['name']}`: {fault['reason'] or 'no reason'}{_left(fault)}" for fault in faults if not fault["killed"]
    ]
    return str(len(faults)), str(len(faults) - len(alive)), "; ".join(alive)


def _left(fault: Mapping[str, Any]) -> str:
    """What was left of a fault's rows, where time was up before it was killed."""
    return f" ({fault['left']} rows were left when time was up)" if fault.get("left") else ""


def keep(*reports: Path) -> None:
    """Keeps what the table needs of the reports; where they were run comes from the first."""
    documents = [json.loads(path.read_text()) for path in reports]
    found = {
        (fault["bank"], fault["name"]): _of_run(document["environment"]) | fault
        for document in documents
        for fault in document["results"]
    }
    kept_names = (*KEPT, *OF_EACH)
    ordered = sorted(found.values(), key=_place)
    results = [{name: fault[name] for name in kept_names if name in fault} for fault in ordered]
    facts = {name: documents[0]["environment"][name] for name in FACTS}
    (RESULTS / FILE).write_text(json.dumps({"schema": 1, "environment": facts, "results": results}, indent=1) + "\n")


def _of_run(facts: Mapping[str, Any]) -> dict[str, Any]:
    """What each fault of a run keeps of it."""
    return {name: facts[name] for name in OF_EACH} | {"date": facts["date"][:10]}


def _place(fault: Mapping[str, Any]) -> tuple[int, str]:
    return list(BANKS).index(fault["bank"]), fault["kind"]


if __name__ == "__main__":
    keep(*map(Path, sys.argv[1:]))
