"""asv's results become samples; those of pytest-benchmark become asv's, and asv reads them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from assay.harness.track.asv_results import from_pytest_benchmark, samples_of
from assay.harness.track.regressions import regressions_of

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


def history(commit: str, date: int, call_s: float, workload_s: float, kernels: int) -> dict[str, object]:
    """A file of asv's with a time, the fixed workload beside it, and the hash of the kernels."""
    names = {"track_call_s": call_s, "track_fixed_workload": workload_s, "track_kernels_hash": kernels}
    results = {f"history.History.{name}": [[value], [["'a'"]], "v", 0, 0.0] for name, value in names.items()}
    columns = ["result", "params", "version", "started_at", "duration"]
    return {"commit_hash": commit * 40, "env_name": "e", "date": date, "results": results, "result_columns": columns}


def test_times_are_relative_to_the_workload_beside_them_and_know_their_kernels(tmp_path: Path) -> None:
    (tmp_path / "machine").mkdir()
    units = {"history.History.track_call_s": {"unit": "s"}}
    (tmp_path / "benchmarks.json").write_text(json.dumps(units))
    for place, commit in enumerate("abcdef012345"):  # from the sixth on, the machine takes twice as long
        slower = 2.0 if place >= 6 else 1.0
        document = history(commit, place + 1, 1e-4 * slower, 1e-3 * slower, 0xABC)
        (tmp_path / "machine" / f"{commit}.json").write_text(json.dumps(document))
    found = samples_of(tmp_path)
    assert {sample["series"] for sample in found} == {"history.History.track_call_s a"}
    assert {sample["kernels"] for sample in found} == {"abc"}
    assert [sample["steady"] for sample in sorted(found, key=lambda each: each["position"])] == [1e-3] * 6 + [2e-3] * 6
    assert regressions_of(found) == []
    (slower_program,) = regressions_of([{**sample, "steady": 1e-3} for sample in found])
    assert slower_program.said == "+100 %" and slower_program.has_same_kernels


def test_failed_benchmarks_of_older_commits_are_left_out(tmp_path: Path) -> None:
    (tmp_path / "machine").mkdir()
    document = history("c", 7, float("nan"), 1e-3, 1)
    document["results"]["history.History.track_kernels"] = None  # type: ignore[index]
    (tmp_path / "machine" / "c.json").write_text(json.dumps(document))
    assert samples_of(tmp_path) == []
