"""What changed between two JSON reports: verdicts, speed, compile time, memory, graph breaks, generated nodes.

A time is slower only when it leaves the spread. For `bench`, the later ratio and its own upper quartile both have to
fall under the lower quartile of the earlier rounds. For `run`, which has no spread, it has to be beyond a tolerance.
Times are compared as ratios within one report, so that two machines can be compared.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from assay.harness.measure import ratio
from assay.harness.report.documents import SCHEMA

Entry = Mapping[str, Any]


class ReportError(ValueError):
    """A file that is not a report; the message says which and why."""


@dataclass(frozen=True, slots=True)
class Change:
    """One fact of one row that is not what it was."""

    row: str
    what: str
    is_worse: bool

    def __str__(self) -> str:
        return f"{'worse' if self.is_worse else '     '}  {self.row}: {self.what}"


def read(path: Path) -> dict[str, Any]:
    """A report of `run` or `bench`.

    Raises: ReportError if the file cannot be read, is not JSON or is not a report of this schema.
    """
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ReportError(f"{path}: cannot be read ({error.strerror})") from error
    except ValueError as error:
        raise ReportError(f"{path}: not JSON ({error})") from error
    if not isinstance(data, dict) or data.get("schema") != SCHEMA or not ({"results", "rows"} & data.keys()):
        raise ReportError(f"{path}: not a report of `assay run --json` or `assay bench --json`, schema {SCHEMA}")
    return data


def compare(before: Mapping[str, Any], after: Mapping[str, Any], tolerance: float) -> list[Change]:
    """Every change, in the order of the earlier report; rows that only one report has come last.

    Raises: ReportError if one is of `run` and the other of `bench`.
    """
    if ("rows" in before) != ("rows" in after):
        raise ReportError("one report is of `assay run`, the other of `assay bench`; compare two of one kind")
    old, new = entries(before), entries(after)
    changes = [change for name in old if name in new for change in row_changes(name, old[name], new[name], tolerance)]
    changes += [Change(name, f"gone; it was {old[name]['verdict']}", True) for name in old if name not in new]
    changes += [Change(name, f"new; it is {new[name]['verdict']}", False) for name in new if name not in old]
    return changes


def entries(data: Mapping[str, Any]) -> dict[str, Entry]:
    """The rows of a report by name."""
    rows = data["rows"] if "rows" in data else data["results"]
    return {
        " ".join(str(row[key]) for key in ("case", "mode", "backend", "against") if key in row): row for row in rows
    }


def row_changes(name: str, old: Entry, new: Entry, tolerance: float) -> Iterator[Change]:
    for check in CHECKS:
        yield from check(name, old, new, tolerance)


def verdict_change(name: str, old: Entry, new: Entry, tolerance: float) -> Iterator[Change]:
    if old["verdict"] != new["verdict"]:
        yield Change(name, f"verdict {old['verdict']} -> {new['verdict']}", is_worse=old["verdict"] == "same")


def difference_change(name: str, old: Entry, new: Entry, tolerance: float) -> Iterator[Change]:
    """Fields that differ from eager now and did not before, where the verdict alone does not tell."""
    if old["verdict"] == new["verdict"]:
        before, after = (differing_fields(entry) for entry in (old, new))
        if after - before:
            yield Change(name, f"now differs in {', '.join(sorted(after - before))}", True)
        if before - after:
            yield Change(name, f"differs no more in {', '.join(sorted(before - after))}", False)


def differing_fields(entry: Entry) -> set[str]:
    return {difference["field"] for difference in entry.get("differences", ())}


def speed_change(name: str, old: Entry, new: Entry, tolerance: float) -> Iterator[Change]:
    before, after = interval(old, tolerance), interval(new, tolerance)
    if before is None or after is None:
        return
    text = f"speed {speed(old):.2f} -> {speed(new):.2f}"
    if after[1] < before[0]:
        yield Change(name, text, True)
    elif after[0] > before[1]:
        yield Change(name, text, False)


def speed(entry: Entry) -> float | None:
    """Theirs over ours in a row of `bench`, eager over the backend in one of `run`."""
    return entry["speed_ratio"] if "speed_ratio" in entry else ratio(entry.get("eager_ms"), entry.get("ms"))


def interval(entry: Entry, tolerance: float) -> tuple[float, float] | None:
    """Where the speed lies: between its quartiles where they are known, else within half of the tolerance."""
    middle = speed(entry)
    if middle is None:
        return None
    low, high = entry.get("speed_spread") or (middle * (1 - tolerance / 2), middle * (1 + tolerance / 2))
    return min(low, middle), max(high, middle)


def number_check(key: str, is_worse: Callable[[float, float], bool]) -> Callable[..., Iterator[Change]]:
    """A check of one number, which any change is worth a line and `is_worse(old, new)` says is worse."""

    def check(name: str, old: Entry, new: Entry, tolerance: float) -> Iterator[Change]:
        before, after = old.get(key), new.get(key)
        if before is not None and after is not None and before != after:
            yield Change(name, f"{key} {before} -> {after}", is_worse(before, after))

    return check


def ratio_check(key: str, higher_is_better: bool) -> Callable[..., Iterator[Change]]:
    """A check of a noisy number, which counts beyond three times the tolerance: it was measured once, not in rounds."""

    def check(name: str, old: Entry, new: Entry, tolerance: float) -> Iterator[Change]:
        change = ratio(new.get(key), old.get(key))
        if change is not None and not 1 / (1 + 3 * tolerance) <= change <= 1 + 3 * tolerance:
            yield Change(name, f"{key} {old[key]:.3g} -> {new[key]:.3g}", is_worse=(change < 1) == higher_is_better)

    return check


CHECKS: tuple[Callable[[str, Entry, Entry, float], Iterator[Change]], ...] = (
    verdict_change,
    difference_change,
    speed_change,
    ratio_check("compile_s", higher_is_better=False),
    ratio_check("memory_ratio", higher_is_better=True),
    number_check("graph_breaks", lambda old, new: new > old),
    number_check("nodes_generated", lambda old, new: new < old),
)
