"""`assay run machine`: what it says, what it writes, how it exits."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from click.testing import Result as Invoked

from harness import cli

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


def test_machine_cli_says_which_backends_exist() -> None:
    result = invoke("--backend", "nonsense")
    assert result.exit_code == 2 and "does not exist" in result.output


@pytest.mark.parametrize("option", ["--runs", "--steps", "--jobs"])
def test_machine_cli_refuses_numbers_below_one(option: str) -> None:
    assert invoke(option, "0").exit_code == 2
