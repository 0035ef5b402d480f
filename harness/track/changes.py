"""Where a series of measurements changes: steps by E-divisive, slow drifts by a test of trend.

A step is looked for at every place between two commits. The statistic is the energy distance between what lies before
and behind it; how often a shuffled series has a larger one is its p-value. What is found divides the series, and both
parts are searched again. A step also has to be larger than what counts, and than the noise around it.

A drift is a series that a straight line fits better than steps do, and whose trend few shuffled series have.

Source: Matteson and James, "A nonparametric approach for multiple change point analysis of multivariate data", 2014.
Cost: quadratic in the commits, times the shuffles.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

SHUFFLES = 999
LIKELY = 0.005
"""The p-value that a step may have at most."""
LIKELY_IF_LARGE, MANY_NOISES = 0.02, 6.0
"""The same for a step of so many times the noise: near the end of a short series no p-value is smaller."""
LEAST_EFFECT = 0.02
"""The share by which a number has to change to count."""
NOISES = 3.0
"""How many times the noise of the two sides a step has to be."""
LEAST_LENGTH = 2
"""Commits on each side of a step."""
DRIFT_LIKELY = 0.001
LEAST_DRIFT = 0.03
LEAST_DRIFTING = 8
"""Commits below which no drift is looked for."""

Numbers = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Step:
    """A change at a place: the first index behind it, and the ratio of the medians, above 1 where it grew."""

    place: int
    ratio: float
    p: float


@dataclass(frozen=True, slots=True)
class Drift:
    """A trend over the whole series: how much it grew from its beginning to its end, as a ratio."""

    ratio: float
    p: float


def steps(values: Sequence[float], seed: int = 0) -> list[Step]:
    """The steps of a series, in order. Every value is above zero."""
    logs = np.log(np.asarray(values, dtype=np.float64))
    shuffled = np.random.default_rng(seed)
    return sorted(_steps(logs, 0, shuffled), key=lambda step: step.place)


def _steps(logs: Numbers, start: int, shuffled: np.random.Generator) -> list[Step]:
    if len(logs) < 2 * LEAST_LENGTH:
        return []
    place, found = best_split(logs)
    effect = float(np.median(logs[place:]) - np.median(logs[:place]))
    noise = _noise(logs, place)
    if abs(effect) < max(math.log1p(LEAST_EFFECT), NOISES * noise):
        return []
    larger = sum(best_split(shuffled.permutation(logs))[1] >= found for _ in range(SHUFFLES))
    p = (larger + 1) / (SHUFFLES + 1)
    if p > (LIKELY_IF_LARGE if abs(effect) > MANY_NOISES * noise else LIKELY):
        return []
    own = Step(start + place, math.exp(effect), p)
    return [*_steps(logs[:place], start, shuffled), own, *_steps(logs[place:], start + place, shuffled)]


def best_split(logs: Numbers) -> tuple[int, float]:
    """The place with the largest energy distance between its sides, and that distance."""
    apart = np.abs(logs[:, None] - logs[None, :])
    sums = np.pad(apart.cumsum(0).cumsum(1), ((1, 0), (1, 0)))
    count, total = len(logs), float(sums[-1, -1])
    places = np.arange(LEAST_LENGTH, count - LEAST_LENGTH + 1)
    left = sums[places, places]
    right = total - 2 * sums[places, count] + left
    between = (total - left - right) / 2
    before, behind = places.astype(np.float64), (count - places).astype(np.float64)
    energy = 2 * between / (before * behind) - left / before**2 - right / behind**2
    scores = energy * before * behind / count
    best = int(np.argmax(scores))
    return int(places[best]), float(scores[best])


def _noise(logs: Numbers, place: int) -> float:
    """The standard error of the difference between the two sides, by the neighbours' differences within them."""
    near = np.concatenate([np.diff(logs[:place]), np.diff(logs[place:])])
    spread = float(np.median(np.abs(near))) * 1.4826 / math.sqrt(2) if len(near) else 0.0
    return spread * math.sqrt(1 / place + 1 / (len(logs) - place)) * math.sqrt(math.pi / 2)


def drift(values: Sequence[float], found: Sequence[Step] = (), seed: int = 0) -> Drift | None:
    """The trend of a series, if a line fits it better than its steps do, and it is none that chance makes."""
    logs = np.log(np.asarray(values, dtype=np.float64))
    count = len(logs)
    if count < LEAST_DRIFTING:
        return None
    slope = theil_sen(logs)
    grown = slope * (count - 1)
    if abs(grown) < math.log1p(LEAST_DRIFT) or not _is_line(logs, slope, found):
        return None
    shuffled = np.random.default_rng(seed)
    rank = abs(concordance(logs))
    larger = sum(abs(concordance(shuffled.permutation(logs))) >= rank for _ in range(2 * SHUFFLES))
    p = (larger + 1) / (2 * SHUFFLES + 1)
    return Drift(math.exp(grown), p) if p <= DRIFT_LIKELY else None


def theil_sen(logs: Numbers) -> float:
    """The median slope between two points."""
    i, j = np.triu_indices(len(logs), 1)
    return float(np.median((logs[j] - logs[i]) / (j - i)))


def concordance(logs: Numbers) -> float:
    """Of all pairs, those that rise less those that fall (Kendall)."""
    i, j = np.triu_indices(len(logs), 1)
    return float(np.sign(logs[j] - logs[i]).sum())


def _is_line(logs: Numbers, slope: float, found: Sequence[Step]) -> bool:
    """Whether a line explains the series better than steps do, for the parameters that each has."""
    count = len(logs)
    line = logs - slope * np.arange(count)
    places = [0, *(step.place for step in found), count]
    parts = [logs[a:b] - np.median(logs[a:b]) for a, b in itertools.pairwise(places)]
    return _information(line - np.median(line), 2) < _information(np.concatenate(parts), 2 * len(found) + 1)


def _information(rest: Numbers, parameters: int) -> float:
    """The Bayesian information criterion of what a model leaves."""
    count = len(rest)
    return count * math.log(float((rest**2).mean()) + 1e-12) + parameters * math.log(count)
