"""`assay selftest --false-alarms`: runs backends that are right over a slice of every suite, and counts accusations.

A row that is not `same` is an accusation, or else `unsettled`: eager itself does not tell. Some accusations are
`explained`, as Dynamo has faults of its own: by the ledger, or as Dynamo with eager behind it fails in the same way.
All others are `wrong`.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, astuple, dataclass
from typing import Any

from assay.harness import outcome
from assay.harness.backends.registry import is_given_shapes
from assay.harness.processes.worker import Answer, ask, cold_environment
from assay.harness.search.hunt import UNSETTLED
from assay.harness.selftest.backends_bank import PLACE, kill_of
from assay.harness.selftest.mutant_rows import BATCH, DEFAULT, NIGHTLY, PROGRAM, QUICK, Row, Slice, slice_rows
from assay.harness.selftest.record import Kill

RIGHT: Mapping[str, str] = {
    "eager-none": "the program as it is",
    f"{PLACE}:rounds_once": "Dynamo's graph, each operator computed in float64 and rounded once",
    "assay,target=aten": "our own compiler without generated code",
}
"""The backends that are tried, and what each does."""
SLICES: Mapping[str, Slice] = {
    QUICK: Slice(24, 12, 4000, ("zoo.bert", "zoo.resnet")),
    DEFAULT: Slice(12, 100, 800, ("zoo.bert", "zoo.resnet", "zoo.vit", "zoo.clip")),
    NIGHTLY: Slice(1, 2500, 200, ("zoo",)),
}
"""How much of each suite, by the level that is asked for. Drawn programs cost the least."""
WORKER = "assay.harness.selftest.alarms_worker"
ROW_S = 900.0
"""How long the rows of a suite may take, for each of them."""
SUITES = {PROGRAM: "programs", BATCH: "ops"}
"""The suite of a row that is no case; a case has it in its name."""
ACCUSED, WRONG = "accused", "wrong"
COUNTS = ("rows", "same", "unsettled", ACCUSED, WRONG)


@dataclass(frozen=True, slots=True)
class Alarm:
    """A row of a right backend that is not `same`: by what, and whether the ledger explains it."""

    kill: Kill
    kind: str


@dataclass(frozen=True, slots=True)
class Watched:
    """How a right backend fared over the rows of a suite."""

    backend: str
    suite: str
    rows: int
    alarms: tuple[Alarm, ...]
    seconds: float

    def counts(self) -> dict[str, int]:
        """How many rows there were of each kind. Those that are accused wrongly are among the accused."""
        unsettled = sum(alarm.kind == "unsettled" for alarm in self.alarms)
        wrong = sum(alarm.kind == WRONG for alarm in self.alarms)
        found = (self.rows, self.rows - len(self.alarms), unsettled, len(self.alarms) - unsettled, wrong)
        return dict(zip(COUNTS, found, strict=True))


def watch_all(level: str, text: str) -> Iterator[Watched]:
    """Each right backend whose name has one of the texts, over each suite, as they end."""
    for backend in (name for name in RIGHT if any(part in name for part in text.split(","))):
        for suite, rows in _by_suite(rows_for(backend, level)).items():
            yield watch(backend, suite, rows)


def rows_for(backend: str, level: str) -> list[Row]:
    """A slice of every suite, with static sizes alone where nothing is compiled."""
    rows = slice_rows(SLICES[level], backend)
    return [row for row in rows if row.backend == backend] if is_given_shapes(backend) else rows


def _by_suite(rows: Iterable[Row]) -> dict[str, list[Row]]:
    found: dict[str, list[Row]] = {}
    for row in rows:
        suite = SUITES.get(row.what) or row.name.partition(".")[0]
        found.setdefault(suite, []).append(row)
    return found


def watch(backend: str, suite: str, rows: Sequence[Row]) -> Watched:
    """Runs the rows in a process of their own, and in a fresh one behind a row that ends it.

    Raises: RuntimeError for a process that begins no row.
    """
    start, count, alarms, left = time.monotonic(), 0, list[Alarm](), list(rows)
    with cold_environment() as environment:
        while left:
            answer = ask(WORKER, {"rows": [astuple(row) for row in left]}, ROW_S * len(left), environment)
            begun = [line["begins"] for line in answer.lines if "begins" in line]
            if not begun:
                raise RuntimeError(f"no row began: {answer.failure}")
            found = alarms_of(answer, begun[-1])
            count += sum(line["ended"] for line in answer.lines if "ended" in line) + (answer.failure is not None)
            alarms += found
            left = left[len(begun) :]
    return Watched(backend, suite, count, tuple(alarms), time.monotonic() - start)


def alarms_of(answer: Answer, last: Sequence[str]) -> list[Alarm]:
    """The rows of an answer that are not `same`; the last that began is one if it ended the process."""
    found = []
    for line in (line for line in answer.lines if "row" in line):
        result = outcome.read(line["row"])
        kind = "unsettled" if result.verdict in UNSETTLED else "explained" if line["passes"] else WRONG
        found.append(Alarm(kill_of(result), kind))
    if answer.failure is not None:
        verdict, said = answer.failure
        case, mode = last
        found.append(Alarm(Kill(case, mode, verdict, detail=said), WRONG))
    return found


def totals(found: Sequence[Watched]) -> dict[str, int]:
    """The sums over all backends and suites."""
    counted = [each.counts() for each in found]
    return {name: sum(counts[name] for counts in counted) for name in COUNTS}


def document(found: Sequence[Watched], facts: Mapping[str, Any]) -> dict[str, Any]:
    """The JSON report: totals, and for each backend on each suite its counts and all rows that are not `same`."""
    results = [{**asdict(each), "counts": each.counts()} for each in found]
    return {"schema": 1, "environment": dict(facts), "totals": totals(found), "results": results}


def line_of(each: Watched) -> str:
    """How a backend fared over a suite, in a line."""
    counts = ", ".join(f"{count} {name}" for name, count in each.counts().items())
    return f"{each.backend} {each.suite}: {counts}  [{each.seconds:.0f} s]"
