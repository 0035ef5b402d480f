"""Stored repros, run again: an excuse holds as long as what it excuses still fails by itself.

Two repros stand behind an entry of the ledger: that of a cause all of whose rows are excused, and the file of
`suites/upstream_bugs` that the entry's reason names. Where one fails no more, the entries that it stands behind are
stale. They are red until they are taken out.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from assay.harness.judge.ledger import PATH, Known
from assay.harness.locate.repro import ASSERTS, RAISES, ended, verified
from assay.harness.remember.verdict_on_run import EXCUSED, FIXED, Cause, Verdict

FILE = re.compile(r"upstream_bugs/\w+\.py")


@dataclass(frozen=True, slots=True)
class Replay:
    """A repro that was run again: whether it still fails, and the entries of the ledger that it stands behind."""

    name: str
    still_fails: bool
    behind: tuple[Known, ...]

    def sentence(self) -> str:
        return f"{self.name} {'still fails' if self.still_fails else 'fails no more'}"


def replays(verdict: Verdict, ledger: Sequence[Known], suites: Path = PATH.parent) -> Iterator[Replay]:
    """Runs the repro of each cause again, and each file behind an entry that excuses a row of the run."""
    living = [cause for cause in verdict.causes if cause.state != FIXED]
    for cause in living:
        if source := cause.cluster.body.get("repro"):
            behind = _behind(cause, ledger) if cause.state == EXCUSED else ()
            yield Replay(f"repro of {cause.cluster.signature[:8]}", bool(verified(str(source), 1)), behind)
    needed = dict.fromkeys(entry for cause in living for entry in _behind(cause, ledger))
    files = {name: [entry for entry in needed if name in entry.reason] for name in _files(needed)}
    for name, entries in files.items():
        if (suites / name).is_file():
            yield Replay(name, ended(suites / name) not in (ASSERTS, RAISES), tuple(entries))


def with_stale(verdict: Verdict, found: Sequence[Replay]) -> Verdict:
    """The verdict, with the excuses that nothing needs any more."""
    gone = [entry for replay in found if not replay.still_fails for entry in replay.behind]
    return dataclasses.replace(verdict, stale=tuple(dict.fromkeys((*verdict.stale, *gone))))


def replayed(verdict: Verdict, ledger: Sequence[Known], say: Callable[[str], None]) -> Verdict:
    """All of it, said one by one."""
    found = []
    for replay in replays(verdict, ledger):
        say(replay.sentence())
        found.append(replay)
    return with_stale(verdict, found)


def _behind(cause: Cause, ledger: Sequence[Known]) -> tuple[Known, ...]:
    """The entries that cover what differs in a cause's rows."""
    results = [row.result for row in cause.rows]
    return tuple(
        entry for entry in ledger
        if any(entry.covers(result, field) for result in results
               for field in (result.verdict, *(each.field for each in result.differences)))
    )  # fmt: skip


def _files(entries: Sequence[Known] | dict[Known, None]) -> list[str]:
    """The files that the reasons name, each once. One that returns 1 has not seen its bug."""
    return list(dict.fromkeys(name for entry in entries for name in FILE.findall(entry.reason)))
