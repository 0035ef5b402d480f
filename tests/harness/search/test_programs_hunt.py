"""The hunt: finds injected faults, makes them small, stores them as files that fail, survives crashes and hangs."""

from __future__ import annotations

import functools
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner, Result
from torch._dynamo import compiled_autograd

import assay
from assay.harness.cli.commands import commands
from assay.harness.judge.compare import is_identical
from assay.harness.outcome import Result as Outcome
from assay.harness.search import hunt_worker
from assay.harness.search.generated import Kind
from assay.harness.search.hunt import Settings
from assay.harness.search.hunt_worker import _Worker, tried
from assay.harness.search.shrink import shrink
from assay.harness.search.stored import stored as text_stored
from assay.suites.programs import draw
from tests.sources import ROOT


def hunted(tmp_path: Path, backend: str, examples: int, *more: str) -> tuple[Result, dict[str, Any]]:
    report = tmp_path / "report.json"
    arguments = ["run", "programs", "--backend", backend, "--examples", str(examples), "--json", str(report)]
    done = CliRunner().invoke(commands, [*arguments, "--store", str(tmp_path / "store"), *more])
    return done, json.loads(report.read_text()) if report.exists() else {}


def run_stored(path: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(path)], cwd=ROOT, env={"PYTHONPATH": str(ROOT)}, capture_output=True, text=True
    )


def statements(source: str) -> list[str]:
    """The lines of the program itself, but for its `def`."""
    return source.rpartition("def program")[2].strip().splitlines()[1:]


def test_hunt_of_eager_itself_finds_nothing(tmp_path: Path) -> None:
    done, report = hunted(tmp_path, "eager-none", 20, "--seed", "3")
    assert done.exit_code == 0, done.output
    assert report["programs"] == 20 and report["verdicts"] == {"same": 40} and not report["failures"]
    assert report["coverage"] and all(entry["count"] > 0 for entry in report["coverage"])
    assert report["valid"] >= 18 and "20 programs" in done.output


@pytest.mark.parametrize(
    "fault, fields", [("drops_write_back", {"mutation", "version"}), ("copies_views", {"alias", "view"})]
)
def test_worker_makes_a_fault_small(fault: str, fields: set[str]) -> None:
    """No bound of time decides it: each program is made as small as it gets, which takes about 25 s in all."""
    backend = f"tests.faulty_backends:{fault}"
    settings = Settings("assay.suites.programs", 5, 0, (backend,), ("infer",), shrink_s=120.0, shrinks=1)
    numbers = (*range(3), writing())
    events: list[dict[str, Any]] = []
    _Worker(settings.request(numbers), events.append).run()
    smallest = [event for event in events if event["event"] == "failure" and event["is_smallest"]]
    found = {difference["field"] for event in smallest for difference in event["result"]["differences"]}
    assert found & fields, found
    shortest = min((event["source"] for event in smallest), key=len)
    assert len(statements(shortest)) <= 3, shortest
    assert {event["index"] for event in events if event["event"] == "end"} == set(numbers)


def test_hunt_stores_what_fails_and_exits_1(tmp_path: Path) -> None:
    done, report = hunted(
        tmp_path, "tests.faulty_backends:drops_write_back", 1, "--mode", "infer", "--first", str(writing())
    )
    assert done.exit_code == 1 and report["failures"], done.output
    assert not any(failure["passes"] for failure in report["failures"])
    paths = list((tmp_path / "store").glob("*.py"))
    assert len(paths) == len(report["failures"])
    ran = run_stored(paths[0])
    assert ran.returncode == 1 and "observations differ" in ran.stdout, ran
    paths[0].write_text(paths[0].read_text().replace(":drops_write_back", ":right"))
    assert run_stored(paths[0]).returncode == 0


def writing() -> int:
    """The number of a program that writes to an input, and fails for it."""
    return next(number for number in range(400) if "    a.zero_()" in draw(f"0:{number}").source())


def test_hunt_outlives_a_crash_of_its_process(tmp_path: Path) -> None:
    first = next(number for number in range(400) if " @ " in draw(f"0:{number}").source())
    place = ("--first", str(first), "--mode", "infer")
    done, report = hunted(tmp_path, "tests.faulty_backends:dies_on_matmul", 2, *place)
    assert done.exit_code == 1 and report["programs"] == 2, done.output
    (crash,) = [failure for failure in report["failures"] if failure["kind"] == "crash of the process"]
    assert crash["index"] == first and " @ " in crash["source"]
    assert crash["result"]["detail"].startswith("in a process of its own; 0 programs ran before it")


def test_hunt_tells_a_crash_that_needs_others_before_it(tmp_path: Path) -> None:
    first = next(number for number in range(400) if " @ " in draw(f"0:{number}").source())
    place = ("--first", str(first), "--mode", "infer")
    done, report = hunted(tmp_path, "tests.faulty_backends:dies_on_a_second_program", 3, *place)
    assert done.exit_code == 1 and report["programs"] == 3, done.output
    crashes = [failure for failure in report["failures"] if failure["kind"].startswith("crash of the process")]
    assert [crash["kind"] for crash in crashes] == ["crash of the process after others"], done.output
    detail = crashes[0]["result"]["detail"].splitlines()
    assert detail[0].startswith("not when it runs in a process of its own; 1 programs ran before it"), detail
    assert any(line.startswith("Fatal Python error") for line in detail)
    assert any("dies_on_a_second_program" in line for line in detail), "where it was is told"


def test_worker_tells_of_smaller_programs_and_counts_the_drawn_one_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """A smaller program that ends the process is known, and one that goes back to eager says nothing of the drawn."""
    drawn = draw("0:1").source()
    smaller: list[str] = []

    def fails(program: Any, mode: str, backend: str, device: str = "cpu") -> Outcome:
        smaller.extend([] if program.source() == drawn else [program.source()])
        return Outcome("program", mode, backend, "diverged")

    monkeypatch.setattr(hunt_worker, "tried", fails)
    monkeypatch.setattr(hunt_worker.journal, "totals", lambda: {"eager_graphs": len(smaller)})
    settings = Settings("assay.suites.programs", 1, 0, ("eager-none",), ("infer",), shrink_s=120.0, shrinks=1)
    events: list[dict[str, Any]] = []
    _Worker(settings.request((1,)), events.append).run()
    assert smaller and not next(event for event in events if event["event"] == "end")["given_back"]
    told = [event["source"] for event in events if event["event"] == "alive"]
    assert told[0] == "" and set(smaller) <= set(told)


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_worker_runs_nothing_on_a_gpu_that_raises(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """An index out of range, as smaller inputs make one, would end the process there."""
    ran: list[str] = []

    def fails(program: Any, mode: str, backend: str, device: str = "cpu") -> Outcome:
        ran.append(program.source())
        return Outcome("program", mode, backend, "diverged" if "[torch.tensor([" in ran[-1] else "same")

    monkeypatch.setattr(hunt_worker, "tried", fails)
    indexed = next(n for n in range(400) if "[torch.tensor([" in draw(f"0:{n}").source())
    settings = Settings(
        "assay.suites.programs", 1, 0, ("eager-none",), ("infer",), shrink_s=120.0, shrinks=1, device=device
    )
    _Worker(settings.request([indexed]), lambda event: None).run()
    raised = [source for source in set(ran) if not is_valid(source)]
    assert len(set(ran)) > 5 and bool(raised) == (device == "cpu")


def is_valid(source: str) -> bool:
    namespace: dict[str, Any] = {}
    exec(source, namespace)
    try:
        with torch.no_grad():
            for numbers in namespace.get("NUMBERS", [()]):
                namespace["program"](*namespace["inputs"](), *numbers)
    except Exception:
        return False
    return True


def test_hunt_outlives_a_hang(tmp_path: Path) -> None:
    first = next(number for number in range(900) if ".sort(" in draw(f"0:{number}").source())
    place = ("--first", str(first), "--mode", "infer", "--timeout", "3")
    done, report = hunted(tmp_path, "tests.faulty_backends:never_ends_on_sort", 1, *place)
    assert done.exit_code == 1, done.output
    assert [failure["kind"] for failure in report["failures"]] == ["timeout of the process"]


def test_hunt_asks_the_whole_harness_about_rounding() -> None:
    verdicts = [tried(draw(f"4:{n}"), "infer", "tests.faulty_backends:loses_a_rounding").verdict for n in range(12)]
    assert {"same", "diverged"} <= set(verdicts) <= {"same", "diverged", "crash"}, verdicts


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


PROGRAM = """
import torch


def inputs():
    return (torch.ones(2, requires_grad=True),)


def program(x):
    return (x * 2,)
"""


@pytest.mark.parametrize(
    ("backend", "entered"),
    [
        ("assay,own_backward,numerics=exact", [("ours", {"numerics": "exact"})]),
        ("eager,compiled_autograd", [("torch's", {})]),
        ("eager", []),
    ],
)
def test_stored_file_compiles_the_whole_backward_where_the_backend_did(
    backend: str, entered: list[object], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found = list[object]()

    def noted(name: str, whole: Callable[[Any], Any], asked: Any) -> Any:
        found.append((name, asked if isinstance(asked, dict) else {}))
        return whole(asked)

    for owner, name, whose in ((assay, "compiled_autograd", "ours"), (compiled_autograd, "_enable", "torch's")):
        monkeypatch.setattr(owner, name, functools.partial(noted, whose, getattr(owner, name)))
    given = {"__name__": "stored"}
    exec(text_stored(PROGRAM, "told", backend, "train", "error"), given)
    assert given["main"]() == 0 and found == entered  # type: ignore[operator]
    assert "0 of" in capsys.readouterr().out
