"""`assay run machine`: what it says, what it writes, how it exits."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from click.testing import Result as Invoked

from assay.harness.cli import commands as cli
from assay.harness.search.drive import CHUNK

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


def test_machine_cli_says_which_backends_exist() -> None:
    result = invoke("--backend", "nonsense")
    assert result.exit_code == 2 and "does not exist" in result.output


@pytest.mark.parametrize("option", ["--runs", "--steps", "--jobs"])
def test_machine_cli_refuses_numbers_below_one(option: str) -> None:
    assert invoke(option, "0").exit_code == 2
