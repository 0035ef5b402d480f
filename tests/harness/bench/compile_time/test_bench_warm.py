"""`compile_time.warm`: rows and means from what processes said, and one case with its real processes."""

from __future__ import annotations

import json

import pytest
from rich.console import Console

from assay.harness.bench.bench_worker import Request
from assay.harness.bench.compile_time import warm
from assay.harness.bench.compile_time.warm import Started, Warm, row_of


def test_warm_ratio_is_theirs_over_ours_and_never_of_noise() -> None:
    row = row_of("a", "infer", "assay", "inductor", Started(2.0, 0.1), Started(9.0, 0.5))
    assert row.warm_ratio == pytest.approx(5) and (row.cold_s, row.against_cold_s) == (2.0, 9.0)
    row = row_of("a", "infer", "assay", "inductor", Started(2.0, 0.0), Started(9.0, 0.5))
    assert row.warm_ratio == pytest.approx(50), "a difference that drowns in the noise counts as 0.01 s"
    row = row_of("a", "infer", "assay", "inductor", Started(None, None, "crash: exit code 1"), Started(9.0, 0.5))
    assert row.warm_ratio is None and row.error == "crash: exit code 1"


def test_warm_summary_has_the_mean_of_what_counts() -> None:
    rows = [
        row_of(name, "infer", "assay", "inductor", Started(1, ours, ""), Started(1, 1.0))
        for name, ours in (("a", 0.5), ("b", 0.125), ("c", None))
    ]
    assert warm.summary(rows) == {"inductor": {"rows": 2, "warm_ratio": pytest.approx(4)}}
    done = Warm(tuple(rows), interrupted=False)
    assert not done.passes
    warm.show(Console(width=200), done)
    assert len(json.loads(json.dumps(warm.document(done, {})))["rows"]) == 3


def test_warm_measures_a_cold_and_a_warm_start() -> None:
    request = Request(
        "cold", "overhead.two_inputs", "overhead.two_inputs", ("train",), "assay", (), "tiny", 0, "cpu", 0
    )
    started = warm.start(request, 100.0, processes=1)
    assert started.error == "" and started.cold_s is not None and started.warm_s is not None
