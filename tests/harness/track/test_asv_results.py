"""asv's results become samples; those of pytest-benchmark become asv's, and asv reads them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from assay.harness.track.asv_results import from_pytest_benchmark, samples_of

DOCUMENT = {
    "commit_info": {"id": "abcdef1234567890"},
    "machine_info": {"python_version": "3.11.7", "system": "Linux", "machine": "x86_64", "cpu": {"brand_raw": "a"}},
    "benchmarks": [{"fullname": "bench_it.py::test_softmax", "stats": {"median": 0.25}}],
}


def test_results_of_pytest_benchmark_become_samples(tmp_path: Path) -> None:
    from_pytest_benchmark(DOCUMENT, tmp_path)
    (sample,) = samples_of(tmp_path)
    assert (sample["series"], sample["commit"]) == ("bench_it.py::test_softmax", "abcdef1234")
    assert (sample["value"], sample["unit"]) == (0.25, "s")


def test_asv_reads_what_was_written(tmp_path: Path) -> None:
    results = pytest.importorskip("asv.results", reason="asv reads its own results: the extra `bench`")
    path = from_pytest_benchmark(DOCUMENT, tmp_path)
    read = results.Results.load(str(path))
    assert read.commit_hash == "abcdef1234567890"
    assert read.get_result_value("bench_it.py::test_softmax", []) == [0.25]


def test_parameters_are_part_of_a_series(tmp_path: Path) -> None:
    row = [[0.5, None, 0.75], [["'a'"], ["1", "2", "3"]], "v", 0, 0.0]
    document = {"commit_hash": "c" * 40, "env_name": "e", "date": 7, "results": {"time_it": row},
                "result_columns": ["result", "params", "version", "started_at", "duration"]}  # fmt: skip
    (tmp_path / "machine").mkdir()
    (tmp_path / "machine" / "c.json").write_text(json.dumps(document))
    assert [(s["series"], s["value"]) for s in samples_of(tmp_path)] == [("time_it a 1", 0.5), ("time_it a 3", 0.75)]


def test_results_without_a_commit_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="name no commit"):
        from_pytest_benchmark({**DOCUMENT, "commit_info": {}}, tmp_path)
