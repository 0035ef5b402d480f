"""`assay selftest --false-alarms`: runs backends that are right over a slice of every suite, and counts accusations.

A row that is not `same` is an accusation, or else `unsettled`: eager itself does not tell. Some accusations are
`explained`, as Dynamo has faults of its own: by the ledger, or as Dynamo with eager behind it fails in the same way.
All others are `wrong`.

Rows are run in blocks, in an order that their names give, and each backend on each suite has its turn. So a run that is
cut short has some of everything, and another one can go on behind it. That one runs again what was accused wrongly: the
record counts those rows that are not any more as `mended`.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, astuple, dataclass, fields
from typing import Any

from assay.harness import outcome
from assay.harness.backends.registry import is_given_shapes
from assay.harness.processes.worker import Answer, ask, cold_environment
from assay.harness.search.hunt import UNSETTLED
from assay.harness.selftest.backends_bank import PLACE, kill_of
from assay.harness.selftest.mutant_rows import BATCH, DEFAULT, NIGHTLY, PROGRAM, QUICK, Row, Slice, hashed, slice_rows
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
SCHEMA = 2
BLOCKS: Mapping[str, int] = {"programs": 60, "semantics": 30, "ops": 3, "zoo": 2}
"""How many rows of a suite one process runs: about two minutes of them."""
ROW_S = 900.0
"""How long the rows of a block may take, for each of them."""
SUITES = {PROGRAM: "programs", BATCH: "ops"}
"""The suite of a row that is no case; a case has it in its name."""
UNSETTLED_KIND, EXPLAINED, ACCUSED, WRONG, MENDED = "unsettled", "explained", "accused", "wrong", "mended"
COUNTS = ("rows", "same", UNSETTLED_KIND, ACCUSED, WRONG, MENDED)


@dataclass(frozen=True, slots=True)
class Alarm:
    """A row of a right backend that is not `same`: by what, whether the ledger explains it, and its place."""

    kill: Kill
    kind: str
    place: str = ""


@dataclass(frozen=True, slots=True)
class Watched:
    """How a right backend fared over the rows of a suite, up to the place `reached` in their order.

    `mended`: how many rows were accused wrongly at first, and were not when they were run again.
    """

    backend: str
    suite: str
    rows: int = 0
    alarms: tuple[Alarm, ...] = ()
    seconds: float = 0.0
    reached: str = ""
    mended: int = 0

    def counts(self) -> dict[str, int]:
        """How many rows there were of each kind. Those that are accused wrongly are among the accused."""
        unsettled = sum(alarm.kind == UNSETTLED_KIND for alarm in self.alarms)
        wrong = sum(alarm.kind == WRONG for alarm in self.alarms)
        accused = len(self.alarms) - unsettled
        found = (self.rows, self.rows - len(self.alarms), unsettled, accused, wrong, self.mended)
        return dict(zip(COUNTS, found, strict=True))


def place_of(row: Row) -> str:
    """Where a row stands in the order in which rows are run. Rows that are new or gone move no other."""
    name = f"{row} {row.mode} {row.backend}"
    return f"{hashed(name):08x} {name}"


def watch_all(level: str, text: str, before: Sequence[Watched] = ()) -> Iterator[Watched]:
    """Each right backend whose name has one of the texts, over each suite in turn, whenever a block of rows has ended.

    `before` is what an earlier run came to. It goes on behind it.
    """
    known = {(each.backend, each.suite): each for each in before}
    waiting = deque(
        watch(known.get((backend, suite), Watched(backend, suite)), rows)
        for backend in (name for name in RIGHT if any(part in name for part in text.split(",")))
        for suite, rows in _by_suite(rows_for(backend, level)).items()
    )
    while waiting:
        running = waiting.popleft()
        if (found := next(running, None)) is not None:
            yield found
            waiting.append(running)


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


def watch(watched: Watched, rows: Iterable[Row]) -> Iterator[Watched]:
    """Runs again what was accused wrongly, then the rows behind the place that was reached; says how each block ends.

    Raises: RuntimeError for a process that begins no row.
    """
    wrong = {alarm.place for alarm in watched.alarms if alarm.kind == WRONG}
    placed = {place_of(row): row for row in rows}
    again = [placed[place] for place in sorted(wrong & placed.keys())]
    left = [*again, *(placed[place] for place in sorted(placed) if place > watched.reached)]
    with cold_environment() as environment:
        while left:
            start = time.monotonic()
            block = left[: BLOCKS[watched.suite]]
            answer = ask(WORKER, {"rows": [astuple(row) for row in block]}, ROW_S * len(block), environment)
            begun = block[: sum("begins" in line for line in answer.lines)]
            if not begun:
                raise RuntimeError(f"no row began: {answer.failure}")
            watched = added(watched, begun, answer, time.monotonic() - start)
            left = left[len(begun) :]
            yield watched


def added(watched: Watched, begun: Sequence[Row], answer: Answer, seconds: float) -> Watched:
    """With what a process came to on the rows that it began. A row that was there before is counted once."""
    places = [place_of(row) for row in begun]
    ended = [line["ended"] for line in answer.lines if "ended" in line] + [1] * (answer.failure is not None)
    new = sum(count for place, count in zip(places, ended, strict=False) if place > watched.reached)
    others = [alarm for alarm in watched.alarms if alarm.place not in places]
    alarms = alarms_of(answer, begun)
    wrong_then = sum(alarm.kind == WRONG for alarm in watched.alarms if alarm.place in places)
    wrong_now = sum(alarm.kind == WRONG for alarm in alarms if alarm.place <= watched.reached)
    return Watched(
        watched.backend,
        watched.suite,
        watched.rows + new,
        (*others, *alarms),
        watched.seconds + seconds,
        max(watched.reached, *places),
        watched.mended + max(0, wrong_then - wrong_now),
    )


def alarms_of(answer: Answer, begun: Sequence[Row]) -> list[Alarm]:
    """The rows of an answer that are not `same`; the last that began is one if it ended the process."""
    found, number = list[Alarm](), -1
    for line in answer.lines:
        number += "begins" in line
        if "row" in line:
            result = outcome.read(line["row"])
            passes = EXPLAINED if line["passes"] else WRONG
            kind = UNSETTLED_KIND if result.verdict in UNSETTLED else passes
            found.append(Alarm(kill_of(result), kind, place_of(begun[number])))
    if answer.failure is not None:
        verdict, said = answer.failure
        found.append(Alarm(Kill(str(begun[-1]), begun[-1].mode, verdict, detail=said), WRONG, place_of(begun[-1])))
    return found


def totals(found: Iterable[Watched]) -> dict[str, int]:
    """The sums over all backends and suites."""
    counted = [each.counts() for each in found]
    return {name: sum(counts[name] for counts in counted) for name in COUNTS}


def document(found: Sequence[Watched], facts: Mapping[str, Any]) -> dict[str, Any]:
    """The JSON report: totals, and for each backend on each suite its counts and all rows that are not `same`."""
    results = [{**asdict(each), "counts": each.counts()} for each in found]
    return {"schema": SCHEMA, "environment": dict(facts), "totals": totals(found), "results": results}


def read(report: Mapping[str, Any], facts: Mapping[str, Any]) -> list[Watched]:
    """What a report holds, to go on behind it.

    Raises: ValueError for a report of another torch or another slice, or one that says not how far it came.
    """
    if report["schema"] != SCHEMA:
        raise ValueError(f"its schema is {report['schema']}, and not {SCHEMA}")
    for name in ("torch", "level"):
        if report["environment"].get(name) != facts[name]:
            raise ValueError(f"its {name} is {report['environment'].get(name)}, and not {facts[name]}")
    return [_of_data(each) for each in report["results"]]


def _of_data(data: Mapping[str, Any]) -> Watched:
    own = {field.name: data[field.name] for field in fields(Watched)}
    alarms = tuple(Alarm(**each | {"kill": Kill(**each["kill"])}) for each in data["alarms"])
    return Watched(**own | {"alarms": alarms})


def line_of(each: Watched) -> str:
    """How a backend fared over a suite, in a line."""
    counts = ", ".join(f"{count} {name}" for name, count in each.counts().items())
    return f"{each.backend} {each.suite}: {counts}  [{each.seconds:.0f} s]"
