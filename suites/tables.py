"""The tables of figures in the documents, made from the JSON of measurements: `python -m suites.tables` writes them.

A table stands between two comments, `<!-- table: NAME -->` and `<!-- /table -->`. Nothing in it is typed. A test fails
where a document does not say what the measurements do.
"""

from __future__ import annotations

import json
import re
import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

Row = Mapping[str, Any]
ROOT = Path(__file__).parents[1]
RESULTS = Path(__file__).parent / "benchmarks" / "results"
DOCUMENTS = ("README.md", "docs/performance.md")
TABLE = re.compile(r"(<!-- table: (\w+) -->\n).*?(<!-- /table -->)", re.S)
ON_CPU, ON_GPU = "zoo_small_against_inductor_2cores.json", "zoo_full_h200.json"
OF_CALLS = "overhead_against_inductor_2cores.json"


def measured(name: str) -> dict[str, Any]:
    """A file of measurements."""
    return json.loads((RESULTS / name).read_text())  # type: ignore[no-any-return]


def mean(values: Sequence[float]) -> str:
    """The geometric mean of ratios."""
    return f"{statistics.geometric_mean(values):.2f}"


def ratios(rows: Sequence[Row], key: str, mode: str) -> list[float]:
    """What rows of a mode have, of those that count."""
    return [row[key] for row in rows if row["mode"] == mode and row.get(key) and row.get("verdict", "same") == "same"]


def _place(where: Mapping[str, Any]) -> str:
    """The machine, the version of torch and the day of a measurement."""
    return f"{where['cpu']}, {where['cores']} cores, torch {where['torch'].partition('+')[0]}, {where['date'][:10]}"


def summary() -> str:
    """Assay beside Inductor in six rows."""
    cpu, gpu, calls = measured(ON_CPU), measured(ON_GPU), measured(OF_CALLS)
    first = [
        dict(row, ratio=row["first_call_s_inductor"] / row["first_call_s_assay"])
        for row in gpu["rows"]
        if row.get("first_call_s_inductor")
    ]
    tiny = [row for row in calls["rows"] if row["against"] == "inductor" and "tiny" in row["case"]]
    on_cpu = _place(cpu["environment"])
    on_gpu = f"{gpu['device'].removeprefix('one ')}, torch {gpu['torch']}, {gpu['date']}"
    lines = [
        ("CPU: speed of a step", cpu["rows"], "speed_ratio", on_cpu),
        ("CPU: cold compile time", cpu["rows"], "compile_ratio", on_cpu),
        ("CPU: peak memory", cpu["rows"], "memory_ratio", on_cpu),
        ("CPU: a call of a tiny function", tiny, "speed_ratio", _place(calls["environment"])),
        ("GPU: speed of a step", gpu["rows"], "speed_ratio", on_gpu),
        ("GPU: first call", first, "ratio", on_gpu),
    ]
    table = ["| Inductor's over Assay's, geometric mean | inference | training | measured on |", "|---|---|---|---|"]
    for what, rows, key, place in lines:
        found = [ratios(rows, key, mode) for mode in ("infer", "train")]
        cells = [f"{mean(values)} ({len(values)})" if values else "" for values in found]
        table.append(f"| {what} | {cells[0]} | {cells[1]} | {place} |")
    return "\n".join(table)


def zoo_on_cpu() -> str:
    """Each model of the zoo beside Inductor on a CPU."""
    rows = measured(ON_CPU)["rows"]
    table = ["| model | mode | ms | Inductor ms | speed | cold compile | memory |", "|---|---|---|---|---|---|---|"]
    for row in rows:
        low, high = row["speed_spread"]
        said = f"{row['speed_ratio']:.2f} ({low:.2f} to {high:.2f})"
        said += "" if row.get("verdict", "same") == "same" else f", `{row['verdict']}`"
        cells = (
            row["case"].removeprefix("zoo."), row["mode"], f"{row['ms']:.3g}", f"{row['against_ms']:.3g}", said,
            *(f"{row[key]:.2f}" if row.get(key) else "" for key in ("compile_ratio", "memory_ratio")),
        )  # fmt: skip
        table.append("| " + " | ".join(cells) + " |")
    return "\n".join(table)


TABLES: Mapping[str, Callable[[], str]] = {"summary": summary, "zoo_on_cpu": zoo_on_cpu}


def filled(text: str) -> str:
    """A document with its tables as they are measured now. Raises: KeyError for a table that there is not."""
    return TABLE.sub(lambda found: f"{found[1]}{TABLES[found[2]]()}\n{found[3]}", text)


def main() -> int:
    for name in DOCUMENTS:
        path = ROOT / name
        path.write_text(filled(path.read_text()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
