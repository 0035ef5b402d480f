"""What a fresh clone is set up with: the pins, the commands that the README names."""

from __future__ import annotations

import configparser
import importlib
import os
import re
import subprocess
import tomllib

import pytest

from tests.sources import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
NAME = re.compile(r"[A-Za-z0-9._-]+")


def normalized(requirement: str) -> str:
    """The distribution's name in a requirement, as indexes compare names."""
    match = NAME.match(requirement)
    assert match, requirement
    return re.sub(r"[-_.]+", "-", match[0]).lower()


def pins() -> dict[str, str]:
    lines = (line for line in (ROOT / "constraints.txt").read_text().splitlines() if not line.startswith("#"))
    return {normalized(name): version for name, _, version in (line.partition("==") for line in lines)}


def test_packaging_pins_every_requirement_to_one_public_version() -> None:
    assert pins()["torch"] == "2.13.0"
    assert all(re.fullmatch(r"\d+(\.\d+)*(\.?[a-z]+\d+)?", version) for version in pins().values()), pins()
    extras = (requirement for extra in PROJECT["optional-dependencies"].values() for requirement in extra)
    asked = {normalized(requirement) for requirement in (*PROJECT["dependencies"], *extras)}
    assert asked - {"assay"} <= pins().keys()


def test_packaging_tox_runs_in_one_installation_under_the_constraints() -> None:
    tox = configparser.ConfigParser(interpolation=None)
    tox.read(ROOT / "tox.ini")
    assert tox["tox"]["env_list"] == "py, lint, types"
    assert {f"testenv:{name}" for name in ("lint", "types", "docs", "bench", "gpu")} <= set(tox.sections())
    assert "PIP_CONSTRAINT = {tox_root}/constraints.txt" in tox["testenv"]["set_env"]
    apart = {section for section in tox.sections() if section != "testenv" and "env_dir" in tox[section]}
    assert apart == {"testenv:libraries"}, "its packages stand in no other environment's way"


@pytest.mark.parametrize("command", ["assay run", "python -m tox", "-c constraints.txt", "--backend"])
def test_packaging_readme_names_the_commands(command: str) -> None:
    assert command in (ROOT / "README.md").read_text()


def test_packaging_workflows_run_environments_that_exist() -> None:
    tox = configparser.ConfigParser(interpolation=None)
    tox.read(ROOT / "tox.ini")
    texts = {path.name: path.read_text() for path in (ROOT / ".github" / "workflows").glob("*.yml")}
    assert texts.keys() == {"tests.yml", "nightly.yml"} and "cron:" in texts["nightly.yml"]
    listed = re.search(r"environment: \[(.*)\]", texts["tests.yml"])
    named = {*(listed[1].split(", ") if listed else ()), *re.findall(r"- environment: (\w+)", texts["tests.yml"])}
    named |= set(re.findall(r"tox -e (\w+)", texts["nightly.yml"]))
    assert named - {"py"} <= {section.removeprefix("testenv:") for section in tox.sections()}
    assert len(named) == 8


def test_packaging_ci_script_runs_tox_in_an_environment_of_its_own() -> None:
    script = ROOT / ".ci" / "run"
    assert os.access(script, os.X_OK)
    subprocess.run(["bash", "-n", script], check=True)
    assert "-m venv" in script.read_text() and "-m tox" in script.read_text()


@pytest.mark.parametrize(
    "target", [*PROJECT["scripts"].values(), *PROJECT["entry-points"]["torch_dynamo_backends"].values()]
)
def test_packaging_entry_points_exist(target: str) -> None:
    module, _, attribute = target.partition(":")
    assert callable(getattr(importlib.import_module(module), attribute))
