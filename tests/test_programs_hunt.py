"""The hunt: finds injected faults, makes them small, stores them as files that fail, survives crashes and hangs."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from harness.cli import commands
from harness.compare import is_identical
from harness.generated import Kind
from harness.hunt_worker import tried
from harness.shrink import shrink
from suites.programs import draw
from tests.sources import ROOT

LINES = 6


def hunted(tmp_path: Path, backend: str, examples: int, *more: str) -> tuple[Result, dict[str, Any]]:
    report = tmp_path / "report.json"
    arguments = ["run", "programs", "--backend", backend, "--examples", str(examples), "--json", str(report)]
    done = CliRunner().invoke(commands, [*arguments, "--store", str(tmp_path / "store"), *more])
    return done, json.loads(report.read_text()) if report.exists() else {}


def run_stored(path: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, str(path)], cwd=ROOT, env={"PYTHONPATH": str(ROOT)}, capture_output=True, text=True)


def statements(source: str) -> list[str]:
    """The lines of the program itself, but for its `def`."""
    return source.rpartition("def program")[2].strip().splitlines()[1:]


def test_hunt_of_eager_itself_finds_nothing(tmp_path: Path) -> None:
    done, report = hunted(tmp_path, "eager-none", 40, "--seed", "3")
    assert done.exit_code == 0, done.output
    assert report["programs"] == 40 and report["verdicts"] == {"same": 80} and not report["failures"]
    assert report["coverage"] and all(entry["count"] > 0 for entry in report["coverage"])
    assert report["valid"] >= 36 and "40 programs" in done.output


@pytest.mark.parametrize(
    "fault, fields", [("drops_write_back", {"mutation", "version"}), ("copies_views", {"alias", "view"})]
)
def test_hunt_finds_and_shrinks_and_stores_a_fault(tmp_path: Path, fault: str, fields: set[str]) -> None:
    done, report = hunted(tmp_path, f"tests.wrong_backends:{fault}", 12, "--mode", "infer", "--seed", "1")
    assert done.exit_code == 1, done.output
    smallest = [failure for failure in report["failures"] if failure["is_smallest"]]
    assert smallest and all(not failure["passes"] for failure in smallest)
    found = {difference["field"] for failure in smallest for difference in failure["result"]["differences"]}
    assert found & fields, found
    shortest = min(smallest, key=lambda failure: len(failure["source"]))
    assert len(statements(shortest["source"])) <= 3, shortest["source"]
    paths = list((tmp_path / "store").glob("*.py"))
    assert len(paths) == len(report["failures"])
    ran = run_stored(min(paths, key=lambda path: path.stat().st_size))
    assert ran.returncode == 1 and "observations differ" in ran.stdout, ran


def test_stored_file_passes_on_a_right_backend(tmp_path: Path) -> None:
    hunted(tmp_path, "tests.wrong_backends:copies_views", 8, "--mode", "infer", "--seed", "1")
    path = next((tmp_path / "store").glob("*.py"))
    path.write_text(path.read_text().replace("wrong_backends:copies_views", "wrong_backends:right"))
    assert run_stored(path).returncode == 0


def test_hunt_outlives_a_crash_of_its_process(tmp_path: Path) -> None:
    first = next(number for number in range(400) if " @ " in draw(f"0:{number}").source())
    place = ("--first", str(first), "--mode", "infer")
    done, report = hunted(tmp_path, "tests.wrong_backends:dies_on_matmul", 2, *place)
    assert done.exit_code == 1 and report["programs"] == 2, done.output
    (crash,) = [failure for failure in report["failures"] if failure["kind"] == "crash of the process"]
    assert crash["index"] == first and " @ " in crash["source"]


def test_hunt_outlives_a_hang(tmp_path: Path) -> None:
    first = next(number for number in range(900) if ".sort(" in draw(f"0:{number}").source())
    place = ("--first", str(first), "--mode", "infer", "--timeout", "12")
    done, report = hunted(tmp_path, "tests.wrong_backends:never_ends_on_sort", 1, *place)
    assert done.exit_code == 1, done.output
    assert [failure["kind"] for failure in report["failures"]] == ["timeout of the process"]


def test_hunt_asks_the_whole_harness_about_rounding() -> None:
    program = next(found for n in range(90) if "v0 = " in (found := draw(f"4:{n}")).source() and not found.raises())
    assert tried(program, "infer", "eager-none").verdict == "same"
    verdicts = {tried(draw(f"4:{n}"), "infer", "tests.wrong_backends:loses_a_rounding").verdict for n in range(12)}
    assert verdicts == {"same", "diverged"}


@pytest.mark.parametrize(
    "arguments, said",
    [
        (["programs", "--backend", "no_such"], "does not exist"),
        (["programs", "--oracle", "moon"], "the oracles are"),
        (["programs", "zoo"], "runs alone"),
        (["programs", "--examples", "0"], "0"),
    ],
)
def test_hunt_refuses_bad_usage(arguments: list[str], said: str) -> None:
    done = CliRunner().invoke(commands, ["run", *arguments])
    assert done.exit_code == 2 and said in done.output, done.output


def test_shrink_keeps_what_fails() -> None:
    program = next(found for n in range(400) if ".zero_()" in (found := draw(f"2:{n}")).source())
    smallest = shrink(program, lambda candidate: ".zero_()" in candidate.source(), 20.0)
    assert ".zero_()" in smallest.source() and len(statements(smallest.source())) <= 2, smallest.source()


def test_kinds_include_their_parts() -> None:
    both = Kind("diverged", frozenset({"stride", "alias"}))
    assert both.includes(Kind("diverged", frozenset({"alias"}))) and both.includes(both)
    assert not both.includes(Kind("diverged", frozenset({"values"})))
    assert not both.includes(Kind("diverged", frozenset()))
    assert not both.includes(Kind("crash", frozenset(), "x"))


def test_identical_runs_are_the_same_bits() -> None:
    assert is_identical((), ())
