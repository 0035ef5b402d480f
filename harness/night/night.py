"""One night: run the parts, keep what they found, locate what is new, measure, publish, sum up.

The time is divided: 70 % for the parts by their shares, 15 % for locating, 15 % for measuring. What a part leaves is
for those after it. The folder holds the store, a report and a log of each part, and the site.
"""

from __future__ import annotations

import datetime
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from assay.harness.judge import ledger
from assay.harness.locate.runner import Runner
from assay.harness.night.parts import Part, Ran, parts, run_part
from assay.harness.night.step_profiles import keep_profiles
from assay.harness.remember.causes import case_of, locate_within
from assay.harness.remember.reports import results_of
from assay.harness.remember.store import Run, Store
from assay.harness.remember.verdict_on_run import NEW, Verdict, base_of, judge_run
from assay.harness.report.documents import Row
from assay.harness.report.environment import environment
from assay.harness.site.publish import publish
from assay.harness.track.measure import measured
from assay.harness.track.regressions import Regression, regressions_of
from assay.harness.track.states import states_of

FOR_PARTS, FOR_LOCATING, FOR_MEASURING = 0.7, 0.15, 0.15
FOR_SAMPLES = 0.7
"""Of the time for measuring; the rest is for taking steps apart."""
MOST_LINES = 18
MOST_STATES = 5


@dataclass(frozen=True, slots=True)
class Settings:
    """What a night is asked for. `budget_s` is the time of all of it; `only` names the parts, all of them if empty."""

    backends: tuple[str, ...]
    budget_s: float
    folder: Path
    url: str
    seed: int = 0
    only: tuple[str, ...] = ()


@dataclass(slots=True)
class Night:
    """What a night came to."""

    settings: Settings
    verdict: Verdict
    regressions: Sequence[Regression]
    page: Path
    seconds: float
    ran: list[Ran] = field(default_factory=list)

    @property
    def passes(self) -> bool:
        return self.verdict.passes and all(each.document is not None for each in self.ran)

    def summary(self) -> list[str]:
        """Under twenty lines: the sentence, the parts, what is new, what got slower, where the page is."""
        lines = [self.verdict.sentence(), *(f"  {each.line()}" for each in self.ran)]
        lines += [f"  new: {cause.cluster.name} ({len(cause.rows)} rows)" for cause in self.verdict.of(NEW)]
        lines += [f"  slower: {each.sentence()}" for each in self.regressions]
        kept = lines[: MOST_LINES - 2]
        more = [f"  and {len(lines) - len(kept)} more lines on the page"] if len(lines) > len(kept) else []
        return [*kept, *more, f"{self.seconds:.0f} s of {self.settings.budget_s:.0f} s; the page is {self.page}"]


def run_night(settings: Settings, say: Callable[[str], None] = lambda text: None) -> Night:
    """A night, within its time; the last part, publishing, takes seconds.

    Raises: StoreError for a store that cannot be opened.
    """
    start = time.monotonic()
    settings.folder.mkdir(parents=True, exist_ok=True)
    facts = environment() | {"seed": settings.seed}
    with Store.open(settings.url) as store:
        run = store.begin(facts, {"night": list(settings.backends)})
        ran = _run_parts(settings, store, run, say)
        left_s = settings.budget_s - (time.monotonic() - start)
        locate_within(store, run, left_s * FOR_LOCATING / (FOR_LOCATING + FOR_MEASURING), say)
        _keep_states(store, run)
        left_s = settings.budget_s - (time.monotonic() - start)
        commit = run.commit or run.started
        if _is_wanted("measure", settings):
            store.measured(run.id, list(measured(settings.backends, left_s * FOR_SAMPLES, commit, say=say)))
            keep_profiles(store, run, settings.budget_s - (time.monotonic() - start), say=say)
        store.end(run)
        verdict = judge_run(store, store.run(run.id), base_of(store, run), ledger.read())
        page = publish(store, verdict, settings.folder / "site")
        found = regressions_of(store.samples())
    return Night(settings, verdict, found, page, time.monotonic() - start, ran)


def _is_wanted(name: str, settings: Settings) -> bool:
    return not settings.only or name in settings.only


def _run_parts(settings: Settings, store: Store, run: Run, say: Callable[[str], None]) -> list[Ran]:
    """Runs the parts; each is given its share of what is left for it and those after it."""
    wanted = [part for part in parts(settings.backends, settings.seed) if _is_wanted(part.name, settings)]
    end_s = time.monotonic() + settings.budget_s * FOR_PARTS
    ran = []
    for place, part in enumerate(wanted):
        limit_s = max(1.0, end_s - time.monotonic()) * part.share / _shares(wanted[place:])
        ended = run_part(part, limit_s, settings.folder)
        say(ended.line())
        _keep(store, run, ended)
        ran.append(ended)
    return ran


def _shares(wanted: Sequence[Part]) -> float:
    return sum(part.share for part in wanted)


def _keep(store: Store, run: Run, ran: Ran) -> None:
    known, today = ledger.read(), datetime.date.today()
    for result in results_of(ran.document or {}):
        store.add(run, Row(result, ledger.judge(result, known, today)))


def _keep_states(store: Store, run: Run) -> None:
    """Keeps the states of the compile of a few cases on which our own backend fails."""
    failed = [row for row in store.rows(run) if not row.judgement.passes and row.result.backend.startswith("assay")]
    for row in failed[:MOST_STATES]:
        if (case := case_of(row)) is not None:
            with Runner(case) as runner:
                states = states_of(runner, row.result.backend, row.result.mode)
            store.attach(row, "states", store.keep("states", json.dumps(states).encode()))
