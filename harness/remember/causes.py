"""Which failures are of one cause: their signature.

Two rows have one cause if they fail in the same way: backend, verdict, fields, error. That costs nothing, and may take
two causes for one. The signature of a failure that has been located is sharper: the first rung that differs, the
field, and the normal form of the shrunk program. Names and numbers do not count in that form.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Sequence

from assay.harness.case import Case
from assay.harness.discover import DiscoverError, discover
from assay.harness.locate.ladder import Climb, Found, NothingFails
from assay.harness.locate.repro import TIMES, Failing, repro_of, verified
from assay.harness.locate.rungs import ladder_of
from assay.harness.locate.runner import Runner
from assay.harness.locate.shrinking.shrink import Budget, NotShrunk, Shrunk, shrunk
from assay.harness.remember.reports import PROGRAM
from assay.harness.remember.store import Cluster, Kept, Run, Store, hashed, now
from assay.harness.search.hunt_worker import ALONE
from assay.harness.search.stored import stored

NAME = re.compile(r"\b[a-z_]\w*\b(?=\s*(?:=(?!=)|[,)\]]|$))")
NUMBER = re.compile(r"(?<![\w.])-?\d+(?:\.\d+)?(?:e-?\d+)?")
SHRINK_S, RUN_S = 30.0, 60.0
ISSUE = (
    "### {bare}: {kind} in {drawn}\n\nIt fails in {failures} of {times} fresh processes.\n\n```python\n{source}```\n"
)
LEAST_S = 45.0
"""A further row is not begun with less time than this, which finding its first rung may take alone."""
MOST_OF_A_KIND = 3
"""How many rows of one kind are located: more of them rarely tell more."""


def failures(rows: Sequence[Kept]) -> list[Kept]:
    """The rows that are not as eager, known ones too."""
    return [row for row in rows if row.kind and row.result.verdict not in ("reference-unstable", "no-oracle")]


def is_located(cluster: Cluster) -> bool:
    """Whether a cause is a bug with a program of its own, and not a kind of failure."""
    return "form" in cluster.body


def by_kind(row: Kept, run: Run) -> Cluster:
    """The cause of a row that was not located."""
    bare = row.result.backend.partition(",")[0]
    name = f"{bare}: {row.kind}"
    return Cluster(hashed(["kind", bare, row.kind]), name[:200], "", run.commit, now(), {"kind": row.kind})


def normal_form(body: str) -> str:
    """The text of a program in which names and numbers are not told apart."""
    names: dict[str, str] = {}

    def renamed(match: re.Match[str]) -> str:
        return names.setdefault(match[0], f"v{len(names)}")

    lines = [line.strip() for line in body.splitlines()]
    return NUMBER.sub("N", "\n".join(NAME.sub(renamed, line) for line in lines))


def located(row: Kept, run: Run, found: Found, least: Shrunk | None) -> Cluster:
    """The cause of a row that was located, with its repro if it has one."""
    bare, rung = row.result.backend.partition(",")[0], found.first.rung.name
    form = normal_form(least.body) if least else ""
    kind = str(found.kind)
    calls = f" in {'+'.join(dict.fromkeys(least.operators))}" if least and least.operators else ""
    body: dict[str, object] = {"kind": kind, "form": form, "confidence": found.confidence, "example": list(row.key)}
    if least is not None:
        on = row.result.backend if least.on_backend else found.first.rung.backend
        below = found.below.rung.name if found.below else ""
        made = repro_of(least, Failing(row.result.case, row.result.mode, on, rung, below))
        body |= {"repro": made.source, "issue": made.issue, "failed": made.failures, "runs": made.runs,
                 "calls": len(least.operators), "operators": sorted(set(least.operators))}  # fmt: skip
    signature = hashed(["located", rung, kind, form or row.result.case])
    where = bare if rung == bare else f"{bare}, {rung}"
    return Cluster(signature, f"{where}: {found.kind.verdict} {_fields(found)}{calls}"[:200], rung, run.commit,
                   now(), body)  # fmt: skip


def of_program(row: Kept, run: Run, program: str) -> Cluster:
    """The cause of a drawn program, which is its own repro. It counts as one where Dynamo alone is as eager."""
    result, bare, kind = row.result, row.result.backend.partition(",")[0], row.kind
    source, plain = (stored(program, f"{name}: {kind}", name, result.mode, kind) for name in (result.backend, ALONE))
    failures = 0 if verified(plain, 1) else verified(source)
    drawn = result.case.removeprefix("programs.")
    body: dict[str, object] = {"kind": kind, "form": normal_form(program), "example": list(row.key)}
    if failures:
        issue = ISSUE.format(bare=bare, kind=kind, drawn=drawn, failures=failures, times=TIMES, source=source)
        body |= {"repro": source, "issue": issue, "failed": failures, "runs": TIMES, "calls": len(drawn.split("+"))}
    signature = hashed(["drawn", bare, kind, body["form"]])
    return Cluster(signature, f"{bare}: {kind} in {drawn}"[:200], "", run.commit, now(), body)


def _fields(found: Found) -> str:
    return ",".join(sorted(found.kind.fields)) or found.kind.error[:60]


def assign_by_kind(store: Store, run: Run) -> None:
    """Gives every failure without a cause the one of its kind."""
    groups: dict[str, tuple[Cluster, list[Kept]]] = {}
    for row in failures(store.rows(run)):
        if row.signature is None:
            cluster = by_kind(row, run)
            groups.setdefault(cluster.signature, (cluster, []))[1].append(row)
    for cluster, rows in groups.values():
        store.assign(rows, cluster)


def locate_within(store: Store, run: Run, limit_s: float, say: Callable[[str], None] = lambda text: None) -> None:
    """Locates failures, some of each kind, until the time is up. Where all located rows of a kind have one cause, the
    others of it have that, too."""
    end_s = time.monotonic() + limit_s
    groups, has_begun = list(_unlocated(store, run)), False
    for place, rows in enumerate(groups):
        causes: dict[str, Cluster] = {}
        for row in sorted(rows, key=lambda row: len(row.result.case))[:MOST_OF_A_KIND]:
            left_s = end_s - time.monotonic()
            if left_s < (LEAST_S if has_begun else 0):
                say(f"time is up: {len(groups) - place} of {len(groups)} kinds of failures are not located, or in part")
                return
            cluster, has_begun = _cause_of(store, row, run, min(SHRINK_S, left_s)), True
            if cluster is not None:
                say(f"{' '.join(row.key)}: {cluster.name}")
                causes[cluster.signature] = cluster
                store.assign([row], cluster)
        if len(causes) == 1:
            store.assign(rows, next(iter(causes.values())))


def _cause_of(store: Store, row: Kept, run: Run, limit_s: float) -> Cluster | None:
    digest = store.attached(row).get(PROGRAM)
    return of_program(row, run, store.content(digest).decode()) if digest else locate_row(row, run, limit_s)


def _unlocated(store: Store, run: Run) -> Iterator[list[Kept]]:
    """The failures that the ledger does not excuse, by their kind, those of most rows first."""
    groups: dict[str, list[Kept]] = {}
    clusters = store.clusters()
    for row in failures(store.rows(run)):
        cluster = clusters.get(str(row.signature))
        if not row.judgement.passes and (cluster is None or not is_located(cluster)):
            groups.setdefault(f"{row.result.backend.partition(',')[0]} {row.kind}", []).append(row)
    yield from sorted(groups.values(), key=len, reverse=True)


def locate_row(row: Kept, run: Run, limit_s: float) -> Cluster | None:
    """The cause of a row; None where its case is not found, or does not fail here."""
    case = case_of(row)
    if case is None:
        return None
    mode, backend = row.result.mode, row.result.backend
    try:
        with Runner(case, timeout_s=RUN_S) as runner:
            found = Climb(runner, mode, ladder_of(backend)).find()
    except NothingFails:
        return None
    try:
        least = shrunk(case, found, backend, size="tiny", seed=0, budget=Budget(limit_s))
    except NotShrunk:
        least = None
    return located(row, run, found, least)


def case_of(row: Kept) -> Case | None:
    """The case of a row, where a suite has it."""
    try:
        cases = discover((row.result.case,))
    except DiscoverError:
        return None
    return cases[0] if len(cases) == 1 else None
