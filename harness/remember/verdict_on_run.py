"""What a run came to against another one: causes that are new, known or fixed, rows that are flaky, stale excuses.

new       nothing before has this cause, or a row of it was as eager in the base and may have another one (`Past`); and
          the ledger does not excuse it: it blocks
known     the base has it, or a run before the base has, as a base that was cut ran fewer rows
excused   every row of it is in the ledger
fixed     the base has it, and each of its rows that ran is as eager now
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

import torch

from assay.harness.judge.ledger import Known, is_among
from assay.harness.remember.causes import assign_by_kind, case_of, failures, is_located
from assay.harness.remember.duplicates import Duplicate, Seen, duplicates_of
from assay.harness.remember.store import Cluster, Kept, Run, Store

DYNAMIC = ",dynamic"
NEW, KNOWN, EXCUSED, FIXED = "new", "known", "excused", "fixed"
PASSED, FAILED, NOTHING_RAN = 0, 1, 3
"""Exit statuses. What ran nothing has found nothing, which is no good news: it has its own."""


@dataclass(frozen=True, slots=True)
class Cause:
    """A cluster with its rows in a run, or in the base where it is fixed."""

    cluster: Cluster
    state: str
    rows: tuple[Kept, ...]

    broken: int = 0
    """How many of its rows were as eager in the base."""
    duplicate: Duplicate | None = None
    """Another cause that it is one with, where there is one that was seen before."""

    def size(self) -> str:
        """`12 rows, 1 as eager before`"""
        return counted(len(self.rows), "row") + (f", {self.broken} as eager before" if self.broken else "")

    @property
    def by_backend(self) -> dict[str, int]:
        return dict(Counter(row.result.backend.partition(",")[0] for row in self.rows))


@dataclass(frozen=True, slots=True)
class Verdict:
    """A whole run. `stale` are entries of the ledger whose case is as eager now: each is to be taken out."""

    run: Run
    base: Run | None
    rows: tuple[Kept, ...]
    causes: tuple[Cause, ...]
    flaky: tuple[tuple[str, str, str], ...] = ()
    stale: tuple[Known, ...] = ()

    def of(self, state: str) -> list[Cause]:
        return [cause for cause in self.causes if cause.state == state]

    @property
    def passes(self) -> bool:
        """Whether nothing is new, and no excuse is stale."""
        return not self.of(NEW) and not self.stale

    @property
    def status(self) -> int:
        """The exit status of the run by itself."""
        if not self.rows:
            return NOTHING_RAN
        return PASSED if self.passes else FAILED

    @property
    def differences(self) -> int:
        return sum(len(cause.rows) for cause in self.causes if cause.state != FIXED)

    def sentence(self) -> str:
        """`412 differences, 5 causes, 1 new since commit abc`"""
        living = [cause for cause in self.causes if cause.state != FIXED]
        said = [counted(self.differences, "difference"), counted(len(living), "cause"), f"{len(self.of(NEW))} new"]
        if self.base is not None:
            since = f"commit {self.base.commit}" if self.base.commit else f"the run of {self.base.started}"
            said[-1] += f" since {since}"
        twice = sum(cause.duplicate is not None for cause in living)
        said += [counted(twice, "duplicate")] if twice else []
        said += [f"{len(self.of(FIXED))} fixed"] if self.of(FIXED) else []
        said += [counted(len(self.stale), "stale excuse")] if self.stale else []
        return f"{', '.join(said)}; {counted(len(self.rows), 'row')}"


def counted(count: int, noun: str) -> str:
    """`1 row`, `2 rows`"""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def base_of(store: Store, run: Run) -> Run | None:
    """The last run before this one that has ended and has a row. One of measurements alone says nothing of any row."""
    has_rows = store.runs_with_rows()
    ended = [other for other in store.runs() if other.ended is not None and other.id in has_rows]
    earlier = [other for other in ended if other.started < run.started]
    return earlier[-1] if earlier else None


def judge_run(store: Store, run: Run, base: Run | None, ledger: Sequence[Known] = ()) -> Verdict:
    """Holds a run against a base: by default every cause that is not excused is new."""
    assign_by_kind(store, run)
    if base is not None:
        assign_by_kind(store, base)
    clusters, rows, past = store.clusters(), store.rows(run), Past.of(store, base)
    now, before = _by_cause(rows), _by_cause(list(past.rows.values()))
    causes = [
        Cause(clusters[name], past.state(clusters[name], found), tuple(found), len(past.broken(found)))
        for name, found in now.items()
    ]
    twice = duplicates_of(Seen(each.cluster, frozenset(each.by_backend), len(each.rows)) for each in causes)
    causes = [dataclasses.replace(each, duplicate=twice.get(each.cluster.signature)) for each in causes]
    causes += [
        Cause(clusters[name], FIXED, tuple(found))
        for name, found in before.items() if name not in now and is_fixed(found, rows)
    ]  # fmt: skip
    order = {state: place for place, state in enumerate((NEW, KNOWN, EXCUSED, FIXED))}
    causes.sort(key=lambda cause: (order[cause.state], -len(cause.rows)))
    return Verdict(run, base, tuple(rows), tuple(causes), flaky_of(store, run), stale_of(ledger, rows))


def _by_cause(rows: Sequence[Kept]) -> dict[str, list[Kept]]:
    found: dict[str, list[Kept]] = {}
    for row in failures(rows):
        if row.signature is not None:
            found.setdefault(row.signature, []).append(row)
    return found


@dataclass(frozen=True, slots=True)
class Past:
    """What was known before a run: the rows of its base, the causes of the base, and those of the base and every run
    before it. A run that was cut has not seen all rows, so that its causes alone say too little."""

    rows: Mapping[tuple[str, str, str], Kept]
    causes: frozenset[str]
    earlier: frozenset[str]

    @staticmethod
    def of(store: Store, base: Run | None) -> Past:
        if base is None:
            return Past({}, frozenset(), frozenset())
        rows = {row.key: row for row in store.rows(base)}
        return Past(rows, frozenset(_by_cause(list(rows.values()))), store.signatures_until(base))

    def broken(self, rows: Sequence[Kept]) -> list[Kept]:
        """Those of the rows that were as eager in the base."""
        return [row for row in rows if row.key in self.rows and self.rows[row.key].result.verdict == "same"]

    def state(self, cluster: Cluster, rows: Sequence[Kept]) -> str:
        """Whether a cause is new. One that was not located is a kind of failure: a row of it that was as eager in the
        base may have another cause than those that were not."""
        if all(row.judgement.passes for row in rows):
            return EXCUSED
        failed_alike = any(row.key in self.rows and self.rows[row.key].kind == row.kind for row in rows)
        is_in_base = cluster.signature in self.causes or failed_alike
        if self.broken(rows):
            return KNOWN if is_in_base and is_located(cluster) else NEW
        return KNOWN if is_in_base or cluster.signature in self.earlier else NEW


def is_fixed(before: Sequence[Kept], rows: Sequence[Kept]) -> bool:
    """Whether some of the rows ran again, and all that did are as eager."""
    now = {row.key: row.result.verdict for row in rows}
    again = [now[row.key] for row in before if row.key in now]
    return bool(again) and all(verdict == "same" for verdict in again)


def flaky_of(store: Store, run: Run) -> tuple[tuple[str, str, str], ...]:
    """The rows that came to both results on this commit, in these surroundings."""
    return tuple(key for key, found in store.verdicts(run.surroundings, run.commit).items() if len(found) == 2)


def stale_of(ledger: Sequence[Known], rows: Sequence[Kept]) -> tuple[Known, ...]:
    """The entries, of one case each, whose rows ran and no longer differ in what is excused."""
    return tuple(entry for entry in ledger if _is_about_one(entry) and _is_stale(entry, rows))


def _is_about_one(entry: Known) -> bool:
    """Whether an entry is of one case, and holds for this version of torch."""
    return "*" not in entry.case and is_among(torch.__version__, entry.torch)


def _is_stale(entry: Known, rows: Sequence[Kept]) -> bool:
    about = [
        row for row in rows
        if row.result.case == entry.case and entry.mode in ("*", row.result.mode)
        and fnmatchcase(row.result.backend, entry.backend)
    ]  # fmt: skip
    is_needed = any(
        row.result.verdict == entry.field or any(each.field == entry.field for each in row.result.differences)
        for row in about
    )
    return bool(about) and not is_needed and _is_whole(entry, about)


def _is_whole(entry: Known, about: Sequence[Kept]) -> bool:
    """Whether the case ran in every mode and kind of shapes that the entry is of, as far as a suite has the case. A run
    that was cut says nothing of an entry that another mode may need."""
    if (case := case_of(about[0])) is None:
        return True
    family = about[0].result.backend.removesuffix(DYNAMIC)
    names = [name for name in (family, family + DYNAMIC) if fnmatchcase(name, entry.backend)]
    wanted = {
        (mode, name) for mode in case.modes if entry.mode in ("*", mode)
        for name in names if ("dynamic" if name.endswith(DYNAMIC) else "static") in case.shapes
    }  # fmt: skip
    return wanted <= {(row.result.mode, row.result.backend) for row in about}


def document(verdict: Verdict) -> dict[str, Any]:
    """The JSON document: what the page, JUnit and SARIF say, too.

    {"schema": 1, "run", "base", "sentence", "passes", "rows", "flaky", "stale",
     "causes": [{"signature", "name", "state", "rung", "first_commit", "first_seen", "by_backend", "duplicate", "body",
                "rows"}]}    `duplicate` is null, or {"of": a signature, "why"}
    """
    return {
        "schema": 1,
        "run": dataclasses.asdict(verdict.run),
        "base": dataclasses.asdict(verdict.base) if verdict.base else None,
        "sentence": verdict.sentence(),
        "passes": verdict.passes,
        "rows": len(verdict.rows),
        "flaky": [list(key) for key in verdict.flaky],
        "stale": [f"{entry.case} {entry.mode} {entry.backend} {entry.field}" for entry in verdict.stale],
        "causes": [_cause_data(cause) for cause in verdict.causes],
    }


def _cause_data(cause: Cause) -> dict[str, Any]:
    cluster = cause.cluster
    told: Mapping[str, Any] = {
        "signature": cluster.signature, "name": cluster.name, "rung": cluster.rung,
        "first_commit": cluster.first_commit, "first_seen": cluster.first_seen, "body": dict(cluster.body),
    }  # fmt: skip
    twice = {"of": cause.duplicate.of.signature, "why": cause.duplicate.why} if cause.duplicate else None
    rows = [list(row.key) for row in cause.rows]
    return {**told, "state": cause.state, "by_backend": cause.by_backend, "duplicate": twice, "rows": rows}
