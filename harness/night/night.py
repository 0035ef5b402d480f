"""One night: run the parts, keep what they found, locate what is new, measure, publish, sum up.

The time is divided: 70 % for the parts by their shares, 15 % for locating, 15 % for measuring. What a part leaves is
for those after it. The folder holds the store, a report and a log of each part, and the site. A night that was killed
goes on where it was: what had ended is in the store and in the folder.
"""

from __future__ import annotations

import dataclasses
import datetime
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from assay.harness.judge import ledger
from assay.harness.locate.runner import Runner
from assay.harness.night.done import Done, continued, held
from assay.harness.night.error_profiles import keep_errors
from assay.harness.night.parts import GRACE_S, Part, Place, Ran, forget, parts, read_report, run_part
from assay.harness.night.step_profiles import keep_profiles
from assay.harness.remember.causes import case_of, locate_within
from assay.harness.remember.reports import keep_programs, reported
from assay.harness.remember.store import Run, Store
from assay.harness.remember.verdict_on_run import FAILED, NEW, NOTHING_RAN, PASSED, Verdict, base_of, judge_run
from assay.harness.report.environment import environment, project
from assay.harness.site.publish import publish
from assay.harness.track.asv_run import measured_by_asv
from assay.harness.track.measure import measured
from assay.harness.track.regressions import Regression, regressions_of
from assay.harness.track.states import states_of

FOR_PARTS, FOR_LOCATING, FOR_MEASURING = 0.7, 0.15, 0.15
FOR_ERRORS = 0.15
"""Of the time for measuring, for how errors grow."""
FOR_SAMPLES, FOR_ASV = 0.6, 0.6
"""Of the time for measuring, and of what is left then for asv; the rest is for taking steps apart."""
NAMES = (*(part.name for part in parts((), 0)), "measure")
"""What `only` may name."""
MOST_LINES = 18
MOST_STATES = 5


@dataclass(frozen=True, slots=True)
class Settings:
    """What a night is asked for. `budget_s` is the time of all of it; `only` names the parts, all of them if empty.
    `continues`: goes on with the folder's night, if that was killed."""

    backends: tuple[str, ...]
    budget_s: float
    folder: Path
    url: str
    seed: int = 0
    only: tuple[str, ...] = ()
    continues: bool = False

    @property
    def request(self) -> dict[str, Any]:
        """What the store keeps of it: a night goes on with one that asked for the same."""
        return {"night": list(self.backends), "only": list(self.only)}


@dataclass(slots=True)
class Night:
    """What a night came to."""

    settings: Settings
    verdict: Verdict
    regressions: Sequence[Regression]
    page: Path
    seconds: float
    ran: list[Ran] = field(default_factory=list)
    measurements: int = 0
    """How many numbers the run has in the store."""

    @property
    def has_run(self) -> bool:
        """Whether a part has run anything; or, in a night of no parts, whether something was measured.

        Rows of the store do not tell: the profile of a step keeps its own row, beside parts in which nothing ended.
        """
        return any(each.has_run for each in self.ran) if self.ran else self.measurements > 0

    @property
    def passes(self) -> bool:
        """Whether nothing is new, every part has reported, and something has run at all."""
        return self.status == PASSED

    @property
    def status(self) -> int:
        """The exit status."""
        if not self.has_run:
            return NOTHING_RAN
        has_reports = all(each.document is not None for each in self.ran)
        return PASSED if self.verdict.passes and has_reports else FAILED

    def summary(self) -> list[str]:
        """Under twenty lines: the sentence, the parts, what is new, what got slower, where the page is."""
        nothing = [] if self.has_run else ["nothing has run: this night says nothing of the backends"]
        lines = [*nothing, self.verdict.sentence(), *(f"  {each.line()}" for each in self.ran)]
        lines += [f"  new: {cause.cluster.name} ({cause.size()})" for cause in self.verdict.of(NEW)]
        lines += [f"  stale: the ledger excuses {each.case} {each.field}" for each in self.verdict.stale]
        lines += [f"  slower: {each.sentence()}" for each in self.regressions]
        kept = lines[: MOST_LINES - 2]
        more = [f"  and {len(lines) - len(kept)} more lines on the page"] if len(lines) > len(kept) else []
        return [*kept, *more, f"{self.seconds:.0f} s of {self.settings.budget_s:.0f} s; the page is {self.page}"]


def run_night(settings: Settings, say: Callable[[str], None] = lambda text: None) -> Night:
    """A night, within its time; the last part, publishing, takes seconds.

    Raises: StoreError for a store that cannot be opened, FolderError for a folder in which another night runs.
    """
    start = time.monotonic()
    with held(settings.folder, GRACE_S) as lock, Store.open(settings.url) as store:
        run, done = _begun(settings, store)
        at = Place(settings.folder, ("--record", settings.url, "--into", run.id), (lock,))
        ran = _run_parts(dataclasses.replace(settings, seed=run.environment["seed"]), store, run, done, at, say)
        left_s = settings.budget_s - (time.monotonic() - start)
        locate_within(store, run, left_s * FOR_LOCATING / (FOR_LOCATING + FOR_MEASURING), say)
        _keep_states(store, run)
        keep_errors(store, run, FOR_ERRORS * (start + settings.budget_s - time.monotonic()), say)
        _measure(settings, store, run, start + settings.budget_s, say)
        store.end(run)
        verdict = judge_run(store, store.run(run.id), base_of(store, run), ledger.read())
        page = publish(store, verdict, settings.folder / "site", [each.line() for each in ran])
        samples = store.samples()
    own = sum(sample["run"] == run.id for sample in samples)
    return Night(settings, verdict, regressions_of(samples), page, time.monotonic() - start, ran, own)


def _begun(settings: Settings, store: Store) -> tuple[Run, Done]:
    """The run to keep what is found in, and which parts of it have ended: those of a night that was killed, or none."""
    facts = environment() | {"seed": settings.seed}
    done = continued(settings.folder, store, settings.request, facts) if settings.continues else None
    if done is not None:
        return store.run(done.run), done
    run = store.begin(facts, settings.request)
    for part in parts(settings.backends, settings.seed):
        forget(part, Place(settings.folder))
    return run, Done.begin(settings.folder, run.id)


def _measure(settings: Settings, store: Store, run: Run, end_s: float, say: Callable[[str], None]) -> None:
    """Keeps each number as it is measured, those of asv too, then takes a few steps apart."""
    if _is_wanted("measure", settings):
        limit_s = (end_s - time.monotonic()) * FOR_SAMPLES
        for sample in measured(settings.backends, limit_s, run.commit or run.started, say=say):
            store.measured(run.id, [sample])
        store.measured(run.id, measured_by_asv(project(), FOR_ASV * (end_s - time.monotonic()), say))
        keep_profiles(store, run, end_s - time.monotonic(), say=say)


def _is_wanted(name: str, settings: Settings) -> bool:
    return not settings.only or name in settings.only


def _run_parts(
    settings: Settings, store: Store, run: Run, done: Done, place: Place, say: Callable[[str], None]
) -> list[Ran]:
    """Runs the parts; each is given its share of what is left for it and those after it. A part in which no row has
    ended by then may take half of what is left for the others."""
    wanted = [part for part in parts(settings.backends, settings.seed) if _is_wanted(part.name, settings)]
    ran = [Ran(part, *done.parts[part.name], read_report(part, place)) for part in wanted if part.name in done.parts]
    left = [part for part in wanted if part.name not in done.parts]
    end_s = time.monotonic() + settings.budget_s * FOR_PARTS
    for number, part in enumerate(left):
        _keep(store, run, read_report(part, place))
        left_s = max(1.0, end_s - time.monotonic())
        limit_s = left_s * part.share / _shares(left[number:])
        ended = run_part(part, limit_s, place, more_s=(left_s - limit_s) / 2)
        say(ended.line())
        _keep(store, run, ended.document)
        done.end(part.name, ended.seconds, ended.status)
        ran.append(ended)
    return ran


def _shares(wanted: Sequence[Part]) -> float:
    return sum(part.share for part in wanted)


def _keep(store: Store, run: Run, document: Mapping[str, Any] | None) -> None:
    """Keeps the rows of a part's report, if there is one."""
    known, today, found = ledger.read(), datetime.date.today(), list(reported(document or {}))
    for each in found:
        store.add(run, each.judged(known, today))
    keep_programs(store, run, found)


def _keep_states(store: Store, run: Run) -> None:
    """Keeps the states of the compile of a few cases on which our own backend fails."""
    failed = [row for row in store.rows(run) if not row.judgement.passes and row.result.backend.startswith("assay")]
    for row in failed[:MOST_STATES]:
        if (case := case_of(row)) is not None:
            with Runner(case) as runner:
                states = states_of(runner, row.result.backend, row.result.mode)
            store.attach(row, "states", store.keep("states", json.dumps(states).encode()))
