"""`assay bench` with its real processes: what it measures, and that no crash or hang ends it."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner, Result

from assay.harness.cli.commands import commands
from assay.harness.processes import child

CASES = """
import ctypes
import time
import torch
from assay.harness.case import case

@case(modes=("infer",))
def well():
    return (lambda x: (x * 2).relu()), (torch.ones(1 << 10),), {}

@case(modes=("infer",))
def segfault():
    ctypes.string_at(0)

@case(modes=("infer",))
def hang():
    time.sleep(600)
"""


@pytest.fixture
def cases(tmp_path: Path) -> str:
    path = tmp_path / "mine.py"
    path.write_text(CASES)
    return str(path)


def invoke(*arguments: str) -> Result:
    return CliRunner(env={"COLUMNS": "200"}).invoke(commands, ["bench", *arguments])


def test_bench_survives_a_crash_and_keeps_the_rest(cases: str, tmp_path: Path) -> None:
    path = tmp_path / "bench.json"
    options = ["--backend", "eager", "--against", "eager", "--rounds", "2", "--json", str(path)]
    result = invoke(cases, "--filter", "l", *options, "--timeout", "60")
    data = json.loads(path.read_text())
    rows = {row["case"]: row for row in data["rows"]}
    assert rows["mine.well"]["verdict"] == "same" and rows["mine.well"]["speed_ratio"] > 0
    assert rows["mine.well"]["compile_s"] is not None and rows["mine.well"]["against_compile_s"] is None
    assert rows["mine.segfault"]["verdict"] == "crash"
    (left_out,) = data["left_out"]
    assert "killed by SIGSEGV" in left_out["reason"]
    assert "geometric means over 1 of 2 rows" in result.output
    assert result.exit_code == 1


def test_bench_ends_what_hangs(cases: str) -> None:
    result = invoke(cases, "--filter", "hang", "--backend", "eager", "--against", "eager", "--timeout", "0.5")
    assert result.exit_code == 1
    assert "timeout: no answer within 0.5 s (--timeout)" in result.output


def test_bench_interrupted_ends_its_worker_and_reports(
    cases: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workers: list[subprocess.Popen[str]] = []

    class Interrupted(subprocess.Popen[str]):
        """A process that the user interrupts while it is waited for."""

        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **options)
            workers.append(self)

        def wait(self, timeout: float | None = None) -> int:
            if timeout is not None:
                raise KeyboardInterrupt
            return super().wait()

    names = {"Popen": Interrupted, "DEVNULL": subprocess.DEVNULL, "TimeoutExpired": subprocess.TimeoutExpired}
    monkeypatch.setattr(child, "subprocess", SimpleNamespace(**names))
    path = tmp_path / "bench.json"
    result = invoke(cases, "--filter", "hang", "--backend", "eager", "--against", "eager", "--json", str(path))
    assert result.exit_code == 130 and [each.returncode for each in workers] == [-9]
    assert json.loads(path.read_text())["interrupted"] is True
