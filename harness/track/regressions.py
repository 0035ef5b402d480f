"""Regressions: changes of measured series for the worse, joined with what is known of the code and the machine.

Numbers are taken relative to a fixed eager workload that was measured beside them, so that a slower machine is none.
A change at which the generated kernels stayed the same is of the machine, or of what surrounds the kernels.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from assay.harness.track.changes import drift, steps

HIGHER_IS_BETTER = ("rows/s", "GB/s", "x")
"""Units of which more is better."""


@dataclass(frozen=True, slots=True)
class Series:
    """A number by commit: the median of each commit's samples, over the fixed workload where that is known."""

    name: str
    unit: str
    commits: tuple[str, ...]
    values: tuple[float, ...]
    kernels: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Regression:
    """A change for the worse. `good` is the last commit before it, `commit` the first behind it."""

    series: str
    unit: str
    place: int
    good: str
    commit: str
    ratio: float
    p: float
    has_same_kernels: bool
    is_drift: bool = False

    @property
    def said(self) -> str:
        """`+6 %`"""
        return f"{(self.ratio - 1) * 100:+.0f} %"

    def sentence(self) -> str:
        """`compile_s zoo.bert train assay stepped +6 % at def (after abc), in the same kernels`"""
        verb = "drifted" if self.is_drift else "stepped"
        where = f"from {self.good} to {self.commit}" if self.is_drift else f"at {self.commit} (after {self.good})"
        kernels = ", in the same kernels" if self.has_same_kernels else ""
        return f"{self.series} {verb} {self.said} {where}{kernels}"


def series_of(samples: Sequence[Mapping[str, Any]]) -> list[Series]:
    """The samples of a store as series, each ordered by the history."""
    named: dict[str, dict[tuple[int, str], list[Mapping[str, Any]]]] = {}
    for sample in samples:
        place = (sample["position"], sample["commit"])
        named.setdefault(sample["series"], {}).setdefault(place, []).append(sample)
    return [_series(name, places) for name, places in sorted(named.items())]


def _series(name: str, places: Mapping[tuple[int, str], Sequence[Mapping[str, Any]]]) -> Series:
    ordered = sorted(places)
    unit = str(places[ordered[0]][0]["unit"])
    fixed = [sample["steady"] for found in places.values() for sample in found if sample["steady"]]
    usual = statistics.median(fixed) if fixed else None

    def value(sample: Mapping[str, Any]) -> float:
        slower = sample["steady"] / usual if usual and sample["steady"] and unit in ("s", "ms") else 1.0
        return float(sample["value"]) / slower

    values = tuple(statistics.median(value(sample) for sample in places[place]) for place in ordered)
    kernels = tuple(str(places[place][-1]["kernels"]) for place in ordered)
    return Series(name, unit, tuple(commit for _, commit in ordered), values, kernels)


def regressions_in(series: Series) -> list[Regression]:
    """The changes of one series for the worse; a drift is told in the place of the steps that it looks like."""
    if len(series.values) < 4 or min(series.values) <= 0:
        return []
    found = steps(series.values)
    trend = drift(series.values, found)
    if trend is not None:
        made = [_made(series, len(series.values) - 1, 0, trend.ratio, trend.p, is_drift=True)]
    else:
        made = [_made(series, step.place, step.place - 1, step.ratio, step.p) for step in found]
    is_worse = (lambda ratio: ratio < 1) if series.unit in HIGHER_IS_BETTER else (lambda ratio: ratio > 1)
    return [each for each in made if is_worse(each.ratio)]


def _made(series: Series, place: int, before: int, ratio: float, p: float, is_drift: bool = False) -> Regression:
    same = bool(series.kernels[place]) and series.kernels[place] == series.kernels[before]
    good, commit = series.commits[before], series.commits[place]
    return Regression(series.name, series.unit, place, good, commit, ratio, p, same, is_drift)


def regressions_of(samples: Sequence[Mapping[str, Any]]) -> list[Regression]:
    """Every change for the worse in the samples of a store."""
    return [found for series in series_of(samples) for found in regressions_in(series)]
