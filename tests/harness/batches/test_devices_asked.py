"""`--device` reaches every program that a suite runs, or is refused."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch
from click.testing import CliRunner

from assay.harness.batches import batch
from assay.harness.batches.batch import How, run_batch
from assay.harness.batches.batch_run import Settings
from assay.harness.batches.batch_summary import on_device
from assay.harness.cli import commands as cli
from assay.harness.outcome import Result
from assay.harness.run import RunRequest
from assay.harness.search import hunt_worker
from assay.harness.search.hunt import Settings as Hunt
from assay.suites.programs import draw
from tests.toy_batches import ALL


@pytest.fixture
def devices(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    asked = list[str]()

    def run_case(case: Any, mode: str, backend: Any, request: RunRequest) -> Result:
        asked.append(request.device)
        return Result(case.name, mode, str(backend), "same")

    for module in (batch, hunt_worker):
        monkeypatch.setattr(module, "run_case", run_case)
    return asked


def test_batches_run_on_the_device(devices: list[str]) -> None:
    run_batch(ALL, How("eager", 0, "toys", device="cuda"))
    run_batch(ALL, How("eager", 0, "toys"))
    assert set(devices[: len(devices) // 2]) == {"cuda"} and set(devices[len(devices) // 2 :]) == {"cpu"}


def test_drawn_programs_run_on_the_device(devices: list[str]) -> None:
    hunt_worker.tried(draw("devices:0"), "infer", "eager", "cuda")
    request = Hunt("assay.suites.programs", 1, 0, ("eager",), ("infer",), device="cuda").request([0])
    hunt_worker._Worker(request, lambda said: None).run()
    assert devices and set(devices) == {"cuda"}


def test_files_of_a_run_on_the_cpu_stay_what_they_were() -> None:
    assert on_device(Settings("assay.suites.ops", "ops")) == {}
    assert on_device(Settings("assay.suites.ops", "ops", device="cuda")) == {"device": "cuda"}


@pytest.mark.parametrize(("suite", "reason"), [("gradients", "are judged on the CPU"), ("machine", "on the CPU")])
def test_a_suite_that_runs_on_the_cpu_alone_says_so(suite: str, reason: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cli, "check_device", lambda device: None)
    monkeypatch.setattr(cli, "environment", lambda device: dict[str, Any]())
    done = CliRunner().invoke(cli.commands, ["run", suite, "--device", "cuda", "--filter", "softmax.float64"])
    assert done.exit_code == 2 and reason in done.output, done.output


def test_a_batch_whose_threads_race_runs_in_one(monkeypatch: pytest.MonkeyPatch) -> None:
    threads, before = list[int](), torch.get_num_threads()

    def run_case(case: Any, mode: str, backend: Any, request: RunRequest) -> Result:
        threads.append(torch.get_num_threads())
        return Result(case.name, mode, str(backend), "same")

    monkeypatch.setattr(batch, "run_case", run_case)
    torch.set_num_threads(2)
    try:
        run_batch(dataclasses.replace(ALL, is_serial=True), How("eager", 0, "toys"))
        serial = len(threads)
        run_batch(ALL, How("eager", 0, "toys"))
        assert set(threads[:serial]) == {1} and set(threads[serial:]) == {2} and torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
