"""asv's results as samples, and pytest-benchmark's results as asv's.

    python -m assay.harness.track.asv_results BENCHMARK.json .asv/results what pytest-benchmark wrote, into asv's folder

asv's folder has one folder a machine. In it is one file a commit and environment, and `benchmarks.json` beside them.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from assay.harness.track.measure import position_of

API_VERSION = 2
MACHINE = "pytest-benchmark"
COLUMNS = ["result", "params", "version", "started_at", "duration", "samples"]
SECONDS = "seconds"
WORKLOAD, HASH = "fixed_workload", "kernels_hash"
"""How benchmarks end that are no series: what a fixed eager workload took beside the others of their class, and the
hash of the kernels that were generated, as a number."""


def samples_of(folder: Path, project: Path | None = None) -> list[dict[str, Any]]:
    """Every number of a folder of asv's results, as the store keeps samples. Commits are ordered by the history of
    `project`, or else of the checkout that a run is of."""
    units = _units(folder)
    found: list[dict[str, Any]] = []
    for path in sorted(folder.glob("*/*.json")):
        document = json.loads(path.read_text())
        if "commit_hash" in document:
            found += _samples(document, units, project)
    return found


def _units(folder: Path) -> dict[str, str]:
    path = folder / "benchmarks.json"
    known = json.loads(path.read_text()) if path.is_file() else {}
    return {name: str(each.get("unit", "")) for name, each in known.items() if isinstance(each, dict)}


def _samples(document: Mapping[str, Any], units: Mapping[str, str], project: Path | None) -> Iterator[dict[str, Any]]:
    commit = str(document["commit_hash"])[:10]
    told = {"commit": commit, "position": position_of(commit, project) or int(document["date"]),
            "run": document.get("env_name", "")}  # fmt: skip
    found = {name: dict(_numbers(document, values)) for name, values in document["results"].items()}
    for name, numbers in found.items():
        if name.endswith((WORKLOAD, HASH)):
            continue
        unit = units.get(name, "").replace(SECONDS, "s") or "s"
        for combination, value in numbers.items():
            kernels = _beside(found, name, HASH, combination)
            yield {**told, "series": " ".join((name, *combination)), "value": value, "unit": unit[:16],
                   "steady": _beside(found, name, WORKLOAD, combination),
                   "kernels": "" if kernels is None else f"{int(kernels):x}"}  # fmt: skip


def _numbers(document: Mapping[str, Any], values: Any) -> Iterator[tuple[tuple[str, ...], float]]:
    """What a benchmark came to by its parameters; nothing of what failed."""
    row = dict(zip(document["result_columns"], values, strict=False)) if isinstance(values, list) else {}
    for combination, value in _values(row):
        if isinstance(value, int | float) and math.isfinite(value) and value > 0:
            yield combination, value


def _beside(
    found: Mapping[str, Mapping[tuple[str, ...], float]], name: str, ending: str, combination: tuple[str, ...]
) -> float | None:
    """The number of the benchmark of the same class that ends so, for the same parameters."""
    own = name.rpartition(".")[0]
    others = (other for other in found if other.rpartition(".")[0] == own and other.endswith(ending))
    return next((found[other].get(combination) for other in others), None)


def _values(row: Mapping[str, Any]) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Each combination of parameters with its number."""
    combinations = list(itertools.product(*(row.get("params") or [])))
    for place, value in enumerate(row.get("result") or []):
        words = combinations[place] if place < len(combinations) else ()
        yield tuple(str(word).strip("'") for word in words), value


def from_pytest_benchmark(document: Mapping[str, Any], folder: Path) -> Path:
    """Writes what pytest-benchmark measured as a file of asv's, and returns its path.

    Raises: ValueError for a document without a commit.
    """
    commit = document.get("commit_info", {}).get("id")
    if not commit or commit == "unknown":
        raise ValueError("the results of pytest-benchmark name no commit; it looks for one in its working folder")
    machine = folder / MACHINE
    machine.mkdir(parents=True, exist_ok=True)
    names = {each["fullname"]: each["stats"] for each in document["benchmarks"]}
    _write_benchmarks(folder, list(names))
    facts = document.get("machine_info", {})
    told = {"machine": MACHINE, "os": facts.get("system", ""), "arch": facts.get("machine", ""),
            "cpu": facts.get("cpu", {}).get("brand_raw", ""), "ram": "", "num_cpu": ""}  # fmt: skip
    (machine / "machine.json").write_text(json.dumps(told | {"version": 1}, indent=1))
    path = machine / f"{commit[:8]}-existing.json"
    path.write_text(json.dumps(_results(commit, document, names), indent=1))
    return path


def _results(commit: str, document: Mapping[str, Any], names: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    python = str(document.get("machine_info", {}).get("python_version", ""))
    results = {name: [[stats["median"]], [], version_of(name), 0, 0.0, None] for name, stats in names.items()}
    return {
        "commit_hash": commit, "env_name": "existing", "date": 0, "params": {"machine": MACHINE, "python": python},
        "python": python, "requirements": {}, "env_vars": {}, "result_columns": COLUMNS, "results": results,
        "durations": {}, "version": API_VERSION,
    }  # fmt: skip


def version_of(name: str) -> str:
    """asv compares only results of one version of a benchmark."""
    return hashlib.sha256(name.encode()).hexdigest()


def _write_benchmarks(folder: Path, names: list[str]) -> None:
    """Adds the benchmarks to those that asv knows of."""
    path = folder / "benchmarks.json"
    known = json.loads(path.read_text()) if path.is_file() else {"version": API_VERSION}
    for name in names:
        known[name] = {"name": name, "code": name, "params": [], "param_names": [], "type": "time", "unit": SECONDS,
                       "version": version_of(name), "timeout": 60.0}  # fmt: skip
    path.write_text(json.dumps(known, indent=1))


def main(source: str, folder: str) -> None:
    print(from_pytest_benchmark(json.loads(Path(source).read_text()), Path(folder)))


if __name__ == "__main__":
    main(*sys.argv[1:])
