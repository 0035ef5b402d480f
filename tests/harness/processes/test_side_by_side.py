"""Rows in several processes at once: each ends as it would alone, and nothing else runs while one is timed."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

from assay.harness import timed_alone
from assay.harness.cli.commands import commands
from assay.harness.processes.child import Child
from assay.harness.processes.isolate import Request
from assay.harness.processes.side_by_side import run_side_by_side
from assay.harness.run import RunRequest

CASES = """
import os, signal
import torch
from assay.harness.case import case


@case(modes=("infer",))
def fine():
    print("what a case prints is no row")
    return torch.sin, (torch.ones(3),), {}


@case(modes=("infer",))
def dies():
    os.kill(os.getpid(), signal.SIGSEGV)


@case(modes=("infer",))
def also_fine():
    return torch.cos, (torch.ones(3),), {}
"""
UNTIMED = RunRequest(timed=False)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (path := tmp_path / "cases_of_three.py").write_text(CASES)
    return path


def test_a_process_that_dies_is_the_crash_of_its_row_alone(file: Path) -> None:
    names = ["fine", "dies", "also_fine", "dies", "fine"]
    requests = [Request(str(file), f"cases_of_three.{name}", "infer", "eager-none", UNTIMED) for name in names]
    begun: list[int] = []
    found = list(run_side_by_side(requests, 2, begun.append))
    assert sorted(begun) == [0, 1, 2, 3, 4]
    verdicts = sorted((result.case.rpartition(".")[2], result.verdict) for result in found)
    assert verdicts == [("also_fine", "same"), ("dies", "crash"), ("dies", "crash"), ("fine", "same"), ("fine", "same")]
    assert all("SIGSEGV" in result.detail for result in found if result.verdict == "crash")


WAITS = """
import os
import torch
from assay.harness.case import case


@case(modes=("infer",))
def {name}():
    assert os.environ.get("OMP_WAIT_POLICY") == "{policy}", os.environ.get("OMP_WAIT_POLICY")
    return torch.sin, (torch.ones(3),), {{}}
"""


@pytest.mark.parametrize("policy", [None, "active"])
@pytest.mark.parametrize("isolated", [(), ("--isolate",)])
def test_threads_of_rows_side_by_side_sleep_while_they_wait(
    isolated: tuple[str, ...], policy: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A thread that spins takes the core that another row needs. What the user has set is kept.
    monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)
    if policy is not None:
        monkeypatch.setenv("OMP_WAIT_POLICY", policy)
    cases = "\n".join(WAITS.format(name=name, policy=policy or "passive") for name in ("one", "two"))
    (file := tmp_path / "cases_of_waiting.py").write_text(cases)
    asked = ["run", str(file), "--backend", "eager-none", "--jobs", "2", *isolated]
    ended = CliRunner().invoke(commands, asked)
    assert ended.exit_code == 0, ended.output


def test_rows_are_reported_in_the_order_of_the_cases(file: Path, tmp_path: Path) -> None:
    orders = []
    for number, options in enumerate((["--jobs", "1"], ["--jobs", "2"], ["--jobs", "2", "--isolate"])):
        report = tmp_path / f"{number}.json"
        names = ["--filter", "fine", "--backend", "eager-none", "--json", str(report), *options]
        assert CliRunner().invoke(commands, ["run", str(file), *names]).exit_code == 0
        orders.append([(row["case"], row["verdict"]) for row in json.loads(report.read_text())["results"]])
    assert orders[0] == orders[1] == orders[2] and len(orders[0]) == 2


TICKS = """
import sys, time
from assay.harness import timed_alone
timed_alone.join()
while True:
    print(time.monotonic(), flush=True)
    time.sleep(0.01)
"""


def test_other_processes_stand_still_while_one_is_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "ticks.py").write_text(TICKS)
    (folder := tmp_path / "folder").mkdir()
    monkeypatch.setenv(timed_alone.FOLDER, str(folder))
    monkeypatch.syspath_prepend(str(tmp_path))
    child = Child("ticks", speaks=True)
    try:
        child.line(60)
        with timed_alone.alone():
            began = time.monotonic()
            time.sleep(0.5)
            ended = time.monotonic()
        seen = [float(child.line(60)) for _ in range(100)]
        assert seen[-1] > ended, "the other one went on afterwards"
        assert sum(began + 0.1 < each < ended for each in seen) == 0
    finally:
        child.end()


def test_a_process_that_dies_while_it_is_alone_leaves_the_others_running(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "ticks.py").write_text(TICKS)
    (folder := tmp_path / "folder").mkdir()
    monkeypatch.setenv(timed_alone.FOLDER, str(folder))
    monkeypatch.syspath_prepend(str(tmp_path))
    child = Child("ticks", speaks=True)
    try:
        child.line(60)
        os.killpg(child.number, signal.SIGSTOP)
        timed_alone.leave(999_999_999)
        ticks = [child.line(60) for _ in range(200)]
        assert float(ticks[-1]) > float(ticks[0])
    finally:
        child.end()


def test_without_other_processes_nothing_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(timed_alone.FOLDER, raising=False)
    with timed_alone.alone():
        pass


def test_a_request_is_plain_data() -> None:
    request = Request("file.py", "a.case", "infer", "assay", UNTIMED)
    assert json.loads(json.dumps(request.data()))["asked"] == dataclasses.asdict(UNTIMED)
    assert request.lost("crash", "why").verdict == "crash"
