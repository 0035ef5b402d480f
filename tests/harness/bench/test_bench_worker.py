"""`assay.harness.bench.bench_worker`: what one measuring process answers."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from assay.harness import measure
from assay.harness.bench import bench_worker
from assay.harness.bench.bench_worker import Request
from assay.harness.discover import discover
from assay.harness.outcome import Difference, Result

CASES = """
import torch
from assay.harness.case import case

@case()
def scale():
    return (lambda x: x * 2), (torch.ones(3, requires_grad=True),), {}

@case(modes=("infer",))
def other():
    return (lambda x: x + 2), (torch.ones(3),), {}
"""

REQUEST = Request(
    "steady", "", "mine.scale", ("infer", "train"), "eager", ("eager", "eager_noexcept"), "tiny", 0, "cpu", 2
)


@pytest.fixture(autouse=True)
def quick_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure.alternate, "__kwdefaults__", {"device": "cpu", "sample_s": 1e-4})


def answers(tmp_path: Path, **changes: Any) -> list[dict[str, Any]]:
    """What the worker writes for a request, run in this process."""
    (tmp_path / "mine.py").write_text(CASES)
    request = dataclasses.replace(REQUEST, origin=str(tmp_path / "mine.py"), **changes)
    (tmp_path / "request").write_text(json.dumps(dataclasses.asdict(request)))
    bench_worker.main(str(tmp_path / "request"), str(tmp_path / "answer"))
    return [json.loads(line) for line in (tmp_path / "answer").read_text().splitlines()]


def test_worker_answers_each_mode_against_each_other(tmp_path: Path) -> None:
    infer, train = answers(tmp_path)
    assert (infer["mode"], infer["verdict"], train["mode"], train["verdict"]) == ("infer", "same", "train", "same")
    for answer in (infer, train):
        assert list(answer["pairs"]) == ["eager", "eager_noexcept"]
        for pair in answer["pairs"].values():
            assert pair["error"] == ""
            assert pair["speed_ratio"] == pytest.approx(pair["against_ms"] / pair["ms"])
            assert pair["speed_spread"][0] <= pair["speed_spread"][1]


def test_worker_measures_cold_compile(tmp_path: Path) -> None:
    (answer,) = answers(tmp_path, kind="cold", modes=("train",), backend="eager_noexcept", against=())
    assert answer["mode"] == "train" and answer["error"] == ""
    assert 0 <= answer["compile_s"] < 30
    assert answer["peak_bytes"] >= 0


def test_worker_reads_a_request_as_it_was_written(tmp_path: Path) -> None:
    (tmp_path / "request").write_text(json.dumps(dataclasses.asdict(REQUEST)))
    assert bench_worker.read_request(tmp_path / "request") == REQUEST


def raising_backend(graph: torch.fx.GraphModule, inputs: list[Tensor]) -> Callable[..., Any]:
    raise RuntimeError("this backend compiles nothing\nand says so at length")


def test_worker_says_why_a_rival_did_not_run(tmp_path: Path) -> None:
    (answer,) = answers(tmp_path, modes=("infer",), against=("tests.harness.bench.test_bench_worker:raising_backend",))
    (pair,) = answer["pairs"].values()
    assert answer["verdict"] == "same" and pair["speed_ratio"] is None
    assert "BackendCompilerFailed" in pair["error"] and "\n" not in pair["error"]


def test_worker_says_why_a_cold_compile_failed(tmp_path: Path) -> None:
    backend = "tests.harness.bench.test_bench_worker:raising_backend"
    (answer,) = answers(tmp_path, kind="cold", modes=("infer",), backend=backend, against=())
    assert answer["compile_s"] is None and "BackendCompilerFailed" in answer["error"]


def test_worker_times_nothing_that_crashed(tmp_path: Path) -> None:
    (answer,) = answers(tmp_path, modes=("infer",), backend="tests.harness.bench.test_bench_worker:raising_backend")
    assert answer["verdict"] == "crash" and answer["pairs"] == {}


def test_worker_names_the_fields_that_diverged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    differences = (Difference("stride", "output", ""), Difference("alias", "output", ""), Difference("stride", "x", ""))
    diverged = Result("mine.scale", "infer", "eager", "diverged", differences)
    monkeypatch.setattr(bench_worker, "run_case", lambda *_, **__: diverged)
    (answer,) = answers(tmp_path, modes=("infer",), against=("eager",))
    assert (answer["verdict"], answer["detail"]) == ("diverged", "alias, stride")
    assert answer["pairs"]["eager"]["ms"] > 0


def test_worker_keeps_the_other_mode_where_the_harness_raises(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def trips(case: object, mode: str, *_: Any, **__: Any) -> Result:
        if mode == "infer":
            raise TypeError("a bug of the harness")
        return Result("mine.scale", mode, "eager", "same")

    monkeypatch.setattr(bench_worker, "run_case", trips)
    infer, train = answers(tmp_path, against=("eager",))
    assert infer["verdict"] == "crash" and "a bug of the harness" in infer["detail"]
    assert train["verdict"] == "same" and train["pairs"]["eager"]["ms"] > 0


CALLS = {"ours": 0, "theirs": 0}


def ours_backend(graph: torch.fx.GraphModule, inputs: list[Tensor]) -> Callable[..., Any]:
    return counting("ours", graph)


def theirs_backend(graph: torch.fx.GraphModule, inputs: list[Tensor]) -> Callable[..., Any]:
    return counting("theirs", graph)


def counting(name: str, graph: torch.fx.GraphModule) -> Callable[..., Any]:
    def call(*args: Any) -> Any:
        CALLS[name] += 1
        return graph.forward(*args)

    return call


def test_pair_runs_each_side_on_its_own_backend_though_they_share_code(tmp_path: Path) -> None:
    place = "tests.harness.bench.test_bench_worker:"
    (answer,) = answers(tmp_path, modes=("infer",), backend=f"{place}ours_backend", against=(f"{place}theirs_backend",))
    (pair,) = answer["pairs"].values()
    assert pair["error"] == "" and CALLS["ours"] >= 3 and CALLS["theirs"] >= 3


def test_overhead_is_told_beside_dynamos_and_as_aot_function() -> None:
    case = next(case for case in discover(["overhead"]) if case.name == "overhead.two_inputs")
    request = Request("steady", case.origin, case.name, ("train",), "eager", ("eager",), "tiny", 0, "cpu", 2)
    pair = bench_worker.pair(request, case, "train", "eager")
    assert pair.dynamo_ms and pair.dynamo_ms > 0 and pair.copy_share is None
    pair = bench_worker.pair(request, case, "train", bench_worker.AHEAD)
    assert pair.speed_ratio and pair.speed_ratio > 0 and pair.dynamo_ms is None and not pair.error


def test_memory_bound_kernels_are_told_beside_a_copy() -> None:
    case = next(case for case in discover(["kernels"]) if case.name == "kernels.relu_residual")
    request = Request("steady", case.origin, case.name, ("infer",), "eager", ("eager",), "tiny", 0, "cpu", 2)
    pair = bench_worker.pair(request, case, "infer", "eager")
    assert pair.copy_share and 0 < pair.copy_share < 1, "16 x 64 elements, four tensors: a copy is one call"


def test_moved_bytes_counts_each_piece_of_memory_once() -> None:
    x = torch.zeros(8)
    assert measure.moved_bytes((x, x), {"y": x[:4]}, [torch.zeros(2, dtype=torch.int64)]) == 32 + 16
    assert measure.copy_step(64)() is not None
