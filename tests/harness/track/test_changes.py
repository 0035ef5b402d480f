"""Planted changes are found at their commit; noise raises no alarm; the machine is told from the program."""

from __future__ import annotations

import numpy as np
import pytest

from assay.harness.track.changes import drift, steps
from assay.harness.track.planted import noise_of, seen_drift, seen_noise, seen_step
from assay.harness.track.regressions import regressions_in, regressions_of, series_of

SAMPLE = {"unit": "s", "kernels": "k", "steady": None, "run": "r"}


@pytest.mark.parametrize("size", [0.05, 0.1])
def test_steps_are_found_at_the_commit_they_were_planted_at(size: float) -> None:
    seen = seen_step(12, 0.005, size)
    assert (seen.found, seen.alarms) == (seen.series, 0)


@pytest.mark.parametrize("noise", [0.005, 0.01])
def test_noise_raises_no_alarm_in_fifty_series(noise: float) -> None:
    assert seen_noise(12, noise).alarms == 0


def test_slow_drifts_are_seen() -> None:
    seen = seen_drift(20, 0.005, 0.005)
    assert seen.found >= 0.95 * seen.series


def test_a_step_is_no_drift() -> None:
    values = noise_of(20, 0.005, 3)
    values[10:] *= 1.1
    assert [step.place for step in steps(values)] == [10] and drift(values, steps(values)) is None


def test_getting_faster_is_no_regression() -> None:
    values = noise_of(12, 0.005, 0)
    values[6:] *= 0.9
    rows = [{**SAMPLE, "series": "x", "commit": str(at), "position": at, "value": v} for at, v in enumerate(values)]
    assert regressions_of(rows) == []
    (series,) = series_of([{**row, "unit": "rows/s"} for row in rows])
    assert regressions_in(series)[0].said == "-10 %"


def test_a_slower_machine_is_told_from_a_slower_program() -> None:
    values, fixed = noise_of(12, 0.004, 1), noise_of(12, 0.002, 2)
    slower = np.where(np.arange(12) >= 6, 1.2, 1.0)
    rows = [
        {**SAMPLE, "series": "x", "commit": str(at), "position": at, "value": v * slower[at], "steady": s * slower[at]}
        for at, (v, s) in enumerate(zip(values, fixed, strict=True))
    ]
    assert regressions_of(rows) == []
    assert regressions_of([{**row, "steady": None} for row in rows])[0].commit == "6"


def test_a_step_in_the_same_kernels_says_so() -> None:
    values = noise_of(12, 0.004, 1)
    values[6:] *= 1.1
    rows = [{**SAMPLE, "series": "x", "commit": str(at), "position": at, "value": v} for at, v in enumerate(values)]
    assert regressions_of(rows)[0].has_same_kernels
    other = [{**row, "kernels": "k" if row["position"] < 6 else "l"} for row in rows]
    assert not regressions_of(other)[0].has_same_kernels
