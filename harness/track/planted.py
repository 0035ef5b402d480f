"""What the search for changes can see: series with planted changes, and series of nothing but noise.

    python -m assay.harness.track.planted [JSON]       the table of docs/regressions.md, and what it is made of

Noise is that of medians on a shared machine: of each commit's number by itself, in the logarithm.
"""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from assay.harness.track.changes import drift, steps

COMMITS = (12, 20, 40)
NOISE = (0.005, 0.01, 0.02)
STEPS = (0.03, 0.05, 0.1)
SERIES = 50


@dataclass(frozen=True, slots=True)
class Seen:
    """Of so many series: at how many the planted commit was named, and how many had an alarm elsewhere."""

    kind: str
    commits: int
    noise: float
    found: int
    alarms: int
    series: int = SERIES


def noise_of(commits: int, noise: float, seed: int) -> np.ndarray:
    """A series around 1."""
    return np.exp(np.random.default_rng(seed).normal(0, noise, commits))


def with_step(commits: int, noise: float, size: float, seed: int) -> tuple[np.ndarray, int]:
    """A series that grows at one place, and that place: three commits from an end at least."""
    place = 3 + seed % (commits - 6)
    values = noise_of(commits, noise, seed)
    values[place:] *= 1 + size
    return values, place


def seen_step(commits: int, noise: float, size: float) -> Seen:
    hits = alarms = 0
    for seed in range(SERIES):
        values, place = with_step(commits, noise, size, seed)
        found = [step.place for step in steps(values.tolist())]
        hits += place in found
        alarms += any(other != place for other in found)
    return Seen(f"step of {size:.0%}", commits, noise, hits, alarms)


def seen_noise(commits: int, noise: float) -> Seen:
    def is_alarm(seed: int) -> bool:
        values = noise_of(commits, noise, seed)
        found = steps(values.tolist())
        return bool(found) or drift(values.tolist(), found) is not None

    return Seen("noise alone", commits, noise, 0, sum(map(is_alarm, range(SERIES))))


def seen_drift(commits: int, noise: float, a_commit: float) -> Seen:
    def is_seen(seed: int) -> bool:
        values = noise_of(commits, noise, seed) * (1 + a_commit) ** np.arange(commits)
        return drift(values.tolist(), steps(values.tolist())) is not None

    return Seen(f"drift of {a_commit:.1%} a commit", commits, noise, sum(map(is_seen, range(SERIES))), 0)


def table(seen: Sequence[Seen]) -> str:
    """The rows as Markdown."""
    head = "| planted | commits | noise | found at its commit | alarms elsewhere |\n|---|--:|--:|--:|--:|"
    rows = [f"| {r.kind} | {r.commits} | {r.noise:.1%} | {r.found} of {r.series} | {r.alarms} |" for r in seen]
    return "\n".join([head, *rows])


def main(path: str = "") -> None:
    """Prints the table; with a path, also writes what it is made of as JSON."""
    kinds: list[Callable[[], Seen]] = []
    for commits in COMMITS:
        for noise in NOISE:
            kinds.append(lambda c=commits, n=noise: seen_noise(c, n))  # type: ignore[misc]
            kinds += [lambda c=commits, n=noise, s=size: seen_step(c, n, s) for size in STEPS]  # type: ignore[misc]
            kinds.append(lambda c=commits, n=noise: seen_drift(c, n, 0.005))  # type: ignore[misc]
    seen = [each() for each in kinds]
    sys.stdout.write(table(seen) + "\n")
    if path:
        Path(path).write_text(
            json.dumps({"schema": 1, "series": [dataclasses.asdict(each) for each in seen]}, indent=1) + "\n"
        )


if __name__ == "__main__":
    main(*sys.argv[1:])
