"""The bank of wrong backends, and the command that tries them; the whole bank is `assay selftest`, a nightly run."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from assay.harness.backends.registry import BackendError, resolve
from assay.harness.cli.commands import commands
from assay.harness.discover import discover
from assay.harness.outcome import Result
from assay.harness.processes.worker import Answer
from assay.harness.row_order import BY_COST
from assay.harness.run import RunRequest, run_case
from assay.harness.selftest import backends_bank
from assay.harness.selftest.backends_bank import PLACE, WrongBackends, killed_by, request_for
from assay.harness.selftest.banks_report import totals
from assay.harness.selftest.command import QUICK
from assay.harness.selftest.record import Asked, Kill, Member, Tried
from assay.harness.selftest.survivors import SurvivorsError, read
from assay.harness.selftest.wrong_backends import BANK, CORRECT
from assay.harness.selftest.wrong_backends.registry import wrong

AT_LEAST = 60
CASES = """
import torch
from assay.harness.case import Made, case

class Small(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.norm = torch.nn.Linear(6, 8), torch.nn.BatchNorm1d(8)
        self.last = torch.nn.Linear(8, 8)

    def forward(self, x):
        return self.last(torch.dropout(self.norm(self.first(x)), 0.25, self.training))

@case()
def small() -> Made:
    return Small(), (torch.randn(4, 6),), {}
"""

KILLED = {
    "scales_results": ("infer", "values"),
    "rounds_results_to_float16": ("infer", "values"),
    "drops_a_gradient": ("train", "gradient"),
    "swaps_two_gradients": ("train", "gradient"),
    "drops_write_back": ("train", "mutation"),
    "hides_writes_from_versions": ("train", "version"),
    "repeats_its_draws": ("train", "values"),
    "draws_one_more": ("infer", "random"),
    "negates_lazily": ("infer", "neg"),
    "ignores_offsets": ("infer", "values"),
    "memoises_by_version": ("infer", "values"),
    "leaves_a_file_open": ("infer", "held"),
    "leaves_a_thread_waiting": ("train", "held"),
    "flushes_tiny_numbers": ("infer", "ambient"),
    "leaves_collection_off": ("infer", "ambient"),
    "leaves_warnings_ignored": ("infer", "ambient"),
    "leaves_a_dispatch_mode_on": ("infer", "ambient"),
    "leaves_backward_in_one_thread": ("infer", "ambient"),
    "leaves_a_hook_on_a_leaf": ("train", "hooks_left"),
    "reserves_too_much_memory": ("infer", "storage"),
    "holds_inputs_in_a_cycle": ("infer", "held"),
    "prints_in_every_call": ("infer", "printed"),
}
"""Faults that one row of a small model shows: the mode, and the field that differs."""


@pytest.fixture
def cases(tmp_path: Path) -> str:
    path = tmp_path / "small_cases.py"
    path.write_text(CASES)
    return str(path)


def verdict_on(cases: str, name: str, mode: str) -> Result:
    (case,) = discover((cases,))
    return run_case(case, mode, f"{PLACE}:{name}", RunRequest(timed=False))


@pytest.mark.parametrize("name", KILLED)
def test_selftest_kills_a_wrong_backend(name: str, cases: str) -> None:
    mode, field = KILLED[name]
    result = verdict_on(cases, name, mode)
    assert result.verdict == "diverged", result
    assert field in {difference.field for difference in result.differences}, result.differences


@pytest.mark.parametrize("mode", ["infer", "train"])
@pytest.mark.parametrize("name", sorted(CORRECT))
def test_selftest_accuses_no_control(name: str, mode: str, cases: str) -> None:
    result = verdict_on(cases, name, mode)
    assert result.verdict == "same", result


def test_selftest_bank_is_large_and_told() -> None:
    assert len(BANK) >= AT_LEAST and len(CORRECT) >= 4
    for name, fault in BANK.items():
        assert fault.wrong.endswith(".") and fault.name == name, fault
        assert resolve(f"{PLACE}:{name}").name == f"{PLACE}:{name}"
    said = [fault.wrong for fault in BANK.values()]
    assert len(said) == len(set(said))


def test_selftest_bank_names_its_backends_where_one_does_not_exist() -> None:
    with pytest.raises(BackendError, match=r"has no backend 'nothing'.*scales_results"):
        resolve(f"{PLACE}:nothing")


def test_selftest_bank_refuses_a_name_twice() -> None:
    with pytest.raises(ValueError, match="needs a new name"):
        wrong("values")(BANK["scales_results"].backend)


def test_selftest_models_are_those_of_the_zoo() -> None:
    names = {case.name.rpartition(".")[2] for case in discover(("zoo",))}
    assert names == set(BY_COST) and names >= set(QUICK)


def test_selftest_command_tells_killed_from_survived(cases: str, tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    wanted = "scales_results,right"
    done = CliRunner(env={"COLUMNS": "200"}).invoke(
        commands, ["selftest", "--backends", "--suite", cases, "--filter", wanted, "--json", str(path)]
    )
    assert done.exit_code == 0, done.output
    told = json.loads(path.read_text())
    by_name = {each["name"]: each for each in told["results"]}
    assert told["totals"] == {"faults": 1, "killed": 1, "explained": 0, "unexplained": 0, "controls": 1, "accused": 0}
    assert by_name["scales_results"]["by"]["field"] == "values" and by_name["scales_results"]["rows"] == 1
    assert not by_name["right"]["killed"] and by_name["right"]["rows"] == 2
    assert "1 of 1 faults killed" in done.output


def test_selftest_goes_on_behind_what_a_cut_run_tried(cases: str, tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    asked = ["selftest", "--backends", "--suite", cases, "--resume", "--json", str(path), "--filter"]
    assert CliRunner().invoke(commands, [*asked, "scales_results"]).exit_code == 0
    first = json.loads(path.read_text())
    done = CliRunner(env={"COLUMNS": "200"}).invoke(commands, [*asked, "scales_results,right"])
    told = json.loads(path.read_text())
    assert done.exit_code == 0 and "[1/1] controls: right" in done.output, done.output
    assert first["results"] == [each for each in told["results"] if each["name"] == "scales_results"]
    assert {each["name"] for each in told["results"]} == {"scales_results", "right"} and not told["interrupted"]
    other = CliRunner().invoke(commands, [*asked, "right", "--seed", "3"])
    assert other.exit_code == 2 and "its seed is 0, and not 3" in other.output


def test_selftest_leaves_out_a_case_that_cannot_be_made(cases: str, tmp_path: Path) -> None:
    """Such a row fails for every backend, so that it would kill all of them."""
    path = Path(cases)
    path.write_text(f"{CASES}\n@case()\ndef absent() -> Made:\n    raise ModuleNotFoundError('no weights here')\n")
    report = tmp_path / "report.json"
    done = CliRunner(env={"COLUMNS": "200"}).invoke(
        commands, ["selftest", "--backends", "--suite", cases, "--filter", "right", "--json", str(report)]
    )
    assert done.exit_code == 0 and "left out: case small_cases.absent" in done.output, done.output
    assert json.loads(report.read_text())["totals"]["accused"] == 0


def test_selftest_command_refuses_a_filter_that_leaves_nothing(cases: str) -> None:
    done = CliRunner().invoke(commands, ["selftest", "--suite", cases, "--filter", "no_such_fault"])
    assert done.exit_code == 2 and "leaves no fault" in done.output


def test_selftest_asks_for_the_mode_of_a_fault_first() -> None:
    asked = Asked((("a", "zoo.a"), ("b", "zoo.b")), ("infer", "train"))
    member = Member("drops_a_gradient", "gradients", "It.", "train")
    rows = request_for(member, asked)["rows"]
    assert [(row[1], row[2]) for row in rows] == [
        ("zoo.a", "train"), ("zoo.b", "train"), ("zoo.a", "infer"), ("zoo.b", "infer"),
    ]  # fmt: skip


def test_selftest_counts_a_process_that_died_as_a_kill_by_its_row() -> None:
    same = {"case": "zoo.a", "mode": "infer", "backend": "x", "verdict": "same", "differences": []}
    lines = ({"begins": ["zoo.a", "infer"]}, {"row": same}, {"begins": ["zoo.a", "train"]})
    kill, rows = killed_by(Answer(lines, ("crash", "killed by SIGSEGV: it said nothing")))
    assert rows == 1 and kill == Kill("zoo.a", "train", "crash", detail="killed by SIGSEGV: it said nothing")
    with pytest.raises(RuntimeError, match="no row began"):
        killed_by(Answer((), ("crash", "exit code 1: no module")))


@pytest.mark.parametrize("hangs", [False, True])
def test_selftest_kills_by_no_row_that_ends_by_itself(hangs: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A backend that survives has the most rows, and time may be up in any of them."""
    same = {"row": dataclasses.asdict(Result("a", "infer", "x", "same"))}
    late = Answer(({"begins": ["a", "infer"]}, same, {"begins": ["b", "infer"]}), ("timeout", "no answer"))
    alone = Answer(({"begins": ["b", "infer"]}, same)) if not hangs else Answer(late.lines[2:], late.failure)
    answers = iter([late, alone])
    monkeypatch.setattr(backends_bank, "ask", lambda *asked: next(answers))
    kill, ended, left = backends_bank.tried_rows({"rows": ["a", "b", "c"]}, 1.0, {})
    assert (kill is not None, ended, left) == ((True, 1, 0) if hangs else (False, 2, 1))


def tried(killed: bool, reason: str = "", is_right: bool = False) -> Tried:
    return Tried("backends", "x", "values", "It.", killed, None, 1.0, 1, is_right, reason)


def test_selftest_passes_what_is_killed_or_explained() -> None:
    assert tried(True).passes and tried(False, "a reason").passes and tried(False, is_right=True).passes
    assert not tried(False).passes, "a survivor without a reason"
    assert not tried(True, "a reason").passes, "an entry of the table that is stale"
    assert not tried(True, is_right=True).passes, "a control that is accused"
    assert totals([tried(True), tried(False), tried(False, "a reason")])["unexplained"] == 1


def test_selftest_survivors_are_of_the_bank() -> None:
    assert {name for bank, name in read() if bank == WrongBackends.name} <= BANK.keys()


def test_selftest_survivors_need_a_reason(tmp_path: Path) -> None:
    path = tmp_path / "survivors.toml"
    path.write_text('[[survivor]]\nbank = "backends"\nname = "x"\n')
    with pytest.raises(SurvivorsError, match="entry 1 needs the texts"):
        read(path)
