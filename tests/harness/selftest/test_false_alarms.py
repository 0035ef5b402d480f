"""The rate of false alarms: who is accused, what explains it, and that the rule about numbers is asked at all."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from torch import nn

from assay.harness.case import Case, Made
from assay.harness.outcome import Difference, Result
from assay.harness.processes.worker import Answer
from assay.harness.run import RunRequest, run_case
from assay.harness.selftest.alarms_worker import is_dynamos, judged
from assay.harness.selftest.backends_bank import PLACE
from assay.harness.selftest.false_alarms import (
    RIGHT,
    WRONG,
    Alarm,
    Watched,
    alarms_of,
    rows_for,
    totals,
)
from assay.harness.selftest.mutant_rows import CASE, DEFAULT, Row
from assay.harness.selftest.record import Kill
from assay.harness.selftest.wrong_backends.rounded_once import RoundedOnce

ROUNDS = f"{PLACE}:rounds_once"


def row(field: str, detail: str, verdict: str = "diverged") -> Result:
    return Result("programs.8", "train", "eager", verdict, differences=(Difference(field, "step 2", detail),))


def layers() -> Made:
    return nn.Sequential(nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 16)), (torch.randn(8, 16),), {}


def test_rounded_once_is_nearer_to_float64_than_eager_and_not_eager() -> None:
    x, weight = torch.randn(64, 64), torch.randn(64, 64)
    with RoundedOnce():
        found = torch.softmax(x @ weight, -1)
    eager, exact = torch.softmax(x @ weight, -1), torch.softmax((x.double() @ weight.double()), -1)
    assert not torch.equal(found, eager) and found.dtype == torch.float32
    assert (found - exact).abs().mean() < (eager - exact).abs().mean()


def test_rounded_once_leaves_steps_draws_and_writes_alone() -> None:
    x = torch.tensor([0.1, 2.5, -0.0])
    with RoundedOnce():
        assert torch.equal(x > 0.1, torch.tensor([False, True, False]))
        assert torch.nextafter(x, x + 1)[0] > x[0]
        torch.manual_seed(3)
        drawn = torch.rand_like(x)
        view, before = x[1:], x._version
        x.add_(1)
    torch.manual_seed(3)
    assert torch.equal(drawn, torch.rand_like(x)) and x._version == before + 1 and view[0] == 3.5


@pytest.mark.parametrize("mode", ["infer", "train"])
def test_who_rounds_elsewhere_is_not_accused(mode: str) -> None:
    case = Case("layers", layers, (mode,), (), ("tiny",))
    result = run_case(case, mode, ROUNDS, RunRequest(timed=False))
    assert result.verdict == "same", result.differences


def test_faults_of_dynamo_explain_what_it_shows_alone() -> None:
    """Dynamo with eager behind it raises no error in one case, which is right without it."""
    origin, name = "assay.suites.semantics.saved_tensors", "semantics.saved_input_is_written_before_backward"
    case = Row(CASE, origin, name, "train", ROUNDS)
    _, (result,) = judged(case)
    assert is_dynamos(case, result)
    assert not is_dynamos(case, dataclasses.replace(result, differences=row("values", "1 of 3").differences))
    assert not is_dynamos(dataclasses.replace(case, backend="eager-none"), result)


def test_alarms_are_counted_by_what_they_are() -> None:
    rows = [
        (row("values", "1 of 3 elements"), False, WRONG),
        (row("values", "1 of 3 elements"), True, "explained"),
        (row("values", "eager's own error", "reference-unstable"), False, "unsettled"),
    ]
    lines = tuple({"row": dataclasses.asdict(result), "passes": passes} for result, passes, _ in rows)
    found = alarms_of(Answer(lines, ("crash", "signal 11")), ("zoo.bert", "infer"))
    assert [alarm.kind for alarm in found] == [*(kind for _, _, kind in rows), WRONG]
    watched = Watched("eager", "programs", 9, tuple(found), 1.0)
    assert watched.counts() == {"rows": 9, "same": 5, "unsettled": 1, "accused": 3, "wrong": 2}
    assert totals([watched, watched])["wrong"] == 4


def test_rows_of_a_wrong_backend_are_accused() -> None:
    origin = "assay.suites.semantics.layout"
    backend = f"{PLACE}:scales_results"
    count, failures = judged(Row(CASE, origin, "semantics.floor_division_of_columns", "infer", backend))
    assert count == 1 and [each.verdict for each in failures] == ["diverged"]


@pytest.mark.parametrize("backend", RIGHT)
def test_each_right_backend_has_rows_of_every_suite(backend: str) -> None:
    kinds = {each.what for each in rows_for(backend, DEFAULT)}
    assert kinds == {"case", "program", "batch"}
    assert Alarm(Kill("zoo.bert", "infer", "crash"), WRONG).kind == WRONG
