"""`assay run machine`: what it says, what it writes, how it exits."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from click.testing import Result as Invoked

from assay.harness.cli import commands as cli
from assay.harness.search.drive import CHUNK, INTERRUPTED, Drive
from tests.sources import ROOT

FEW = ("--runs", "2", "--steps", "4", "--subjects", "add_into_first")


def invoke(*arguments: str) -> Invoked:
    return CliRunner(env={"COLUMNS": "200"}).invoke(cli.commands, ["run", "machine", *FEW, *arguments])


def test_machine_cli_exits_zero_where_the_twins_agree(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    result = invoke("--backend", "tests.wrong_backends:right", "--store", str(tmp_path), "--json", str(path))
    assert result.exit_code == 0, result.output
    (row,) = json.loads(path.read_text())["machine"]
    assert row["runs"] >= 2 and row["subjects"] == {"add_into_first": row["runs"]} and not row["failures"]
    assert "0 distinct failures" in result.output and row["plan"]["steps"] == 4


def test_machine_cli_exits_one_and_stores_a_script_where_they_differ(tmp_path: Path) -> None:
    result = invoke("--backend", "tests.wrong_backends:drops_a_write", "--store", str(tmp_path), "--jobs", "1")
    assert result.exit_code == 1, result.output
    assert "add_into_first values" in result.output
    assert [path for path in tmp_path.glob("add_into_first_values*.py") if str(path) in result.output]


def test_machine_cli_shards_over_processes(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    result = invoke("--backend", "eager", "--store", str(tmp_path), "--json", str(path), "--jobs", "2")
    assert result.exit_code == 0, result.output
    (row,) = json.loads(path.read_text())["machine"]
    assert row["runs"] >= 2 and row["plan"]["jobs"] == 2


@pytest.mark.parametrize("jobs", ["2", "3"])
def test_machine_cli_names_the_chunk_that_its_process_died_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, jobs: str
) -> None:
    monkeypatch.setenv("ASSAY_TEST_DIED", str(tmp_path / "died"))
    path = tmp_path / "report.json"
    more = ("--runs", str(2 * CHUNK + 1), "--seed", "20", "--jobs", jobs, "--json", str(path))
    result = invoke("--backend", "tests.wrong_backends:kills_its_process_once", "--store", str(tmp_path), *more)
    assert result.exit_code == 1, result.output
    (row,) = json.loads(path.read_text())["machine"]
    ((key, failure),) = row["failures"].items()
    seed = int(key.removeprefix("crash of seed "))
    runs = {20: CHUNK, 21: CHUNK, 22: 1}
    assert failure["count"] == 1 and "status 7" in failure["differences"][0]["detail"]
    assert f"--runs {runs[seed]} --steps 4 --seed {seed} --subjects add_into_first" in result.output
    assert row["runs"] >= sum(runs.values()) - runs[seed]  # the other chunks ran, in another process


@pytest.mark.parametrize("jobs", ["1", "2"])
def test_machine_cli_reports_what_has_ended_when_it_is_cut(tmp_path: Path, jobs: str) -> None:
    path = tmp_path / "report.json"
    command = ["run", "machine", "--runs", "100000", "--steps", "2", "--jobs", jobs, "--backend", "eager"]
    log = (tmp_path / "log").open("w")
    process = subprocess.Popen([sys.executable, "-m", "assay", *command, "--json", str(path)], cwd=ROOT, stdout=log)
    while not path.is_file() or not path.read_text():
        assert process.poll() is None
        time.sleep(0.2)
    before = json.loads(path.read_text())
    process.terminate()
    assert process.wait(60) == INTERRUPTED
    after = json.loads(path.read_text())
    assert before["interrupted"] and after["interrupted"]
    assert after["machine"][0]["runs"] >= before["machine"][0]["runs"] and after["machine"][0]["seconds"] > 0
    assert f"{after['machine'][0]['runs']} runs on eager" in (tmp_path / "log").read_text()


def test_machine_ends_at_an_interrupt_that_a_callback_swallows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Drive, "_ended", swallowing(Drive._ended))
    result = invoke("--backend", "eager", "--runs", "100000", "--store", str(tmp_path), "--jobs", "1")
    assert result.exit_code == INTERRUPTED and result.output.startswith("3 runs on eager")


def swallowing(ended: Callable[..., None]) -> Callable[..., None]:
    """Before the third run counts as ended, an interrupt comes whose exception is lost."""

    def told(self: Drive, *given: Any) -> None:
        if self.tally.runs == 2:
            with contextlib.suppress(KeyboardInterrupt):
                os.kill(os.getpid(), signal.SIGINT)
        ended(self, *given)

    return told


def test_machine_cli_runs_chunks_of_its_backends_in_turn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    run_chunk = Drive.run_chunk

    def noted(self: Drive, check: Callable[[], None]) -> None:
        told.append(self.plan.backend)
        run_chunk(self, check)

    monkeypatch.setattr(Drive, "run_chunk", noted)
    backends = ("--backend", "eager", "--backend", "tests.wrong_backends:right")
    assert invoke(*backends, "--runs", str(CHUNK + 1), "--store", str(tmp_path)).exit_code == 0
    assert told == ["eager", "tests.wrong_backends:right"] * 2


def test_machine_cli_says_which_backends_exist() -> None:
    result = invoke("--backend", "nonsense")
    assert result.exit_code == 2 and "does not exist" in result.output


@pytest.mark.parametrize("option", ["--runs", "--steps", "--jobs"])
def test_machine_cli_refuses_numbers_below_one(option: str) -> None:
    assert invoke(option, "0").exit_code == 2
