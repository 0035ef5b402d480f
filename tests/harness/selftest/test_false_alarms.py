"""The rate of false alarms: who is accused, what explains it, and that the rule about numbers is asked at all."""

from __future__ import annotations

import dataclasses
import itertools
import json

import pytest
import torch
from torch import nn

from assay.harness.case import Case, Made
from assay.harness.discover import discover
from assay.harness.outcome import Difference, Result
from assay.harness.processes.worker import Answer
from assay.harness.protocol.acts import steps
from assay.harness.run import RunRequest, run_case
from assay.harness.selftest import false_alarms
from assay.harness.selftest.alarms_worker import is_dynamos, judged
from assay.harness.selftest.backends_bank import PLACE
from assay.harness.selftest.false_alarms import (
    RIGHT,
    WRONG,
    Alarm,
    Watched,
    added,
    alarms_of,
    document,
    place_of,
    read,
    rows_for,
    totals,
    watch,
    watch_all,
)
from assay.harness.selftest.mutant_rows import CASE, DEFAULT, PROGRAM, QUICK, Row
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


def test_rounded_once_calls_an_operator_of_the_users_once() -> None:
    calls: list[torch.dtype] = []
    with torch.library._scoped_library("assay_rounded_once", "DEF") as library:
        library.define("counted(Tensor x) -> Tensor")
        library.impl("counted", lambda x: [calls.append(x.dtype), x * 2][1], "CPU")
        with RoundedOnce():
            torch.ops.assay_rounded_once.counted(torch.ones(3))
    assert calls == [torch.float32]


@pytest.mark.parametrize("mode", ["infer", "train"])
def test_who_rounds_elsewhere_is_not_accused(mode: str) -> None:
    case = Case("layers", layers, (mode,), (), ("tiny",))
    result = run_case(case, mode, ROUNDS, RunRequest(timed=False))
    assert result.verdict == "same", result.differences


def test_who_rounds_elsewhere_counts_the_writes_of_users_operators() -> None:
    """Behind a dispatch mode, an operator's own writes raise no version, which is no fault of its backend."""
    (case,) = discover(["semantics.operator_mutates_two_overlapping_inputs"])
    result = run_case(case, "infer", ROUNDS, RunRequest(timed=False, protocol=steps("infer", 2)))
    assert result.verdict == "same", result.differences


def test_faults_of_dynamo_explain_what_it_shows_alone() -> None:
    """Dynamo with eager behind it raises no error in one case, which is right without it."""
    origin, name = "assay.suites.semantics.saved_tensors", "semantics.saved_input_is_written_before_backward"
    case = Row(CASE, origin, name, "train", ROUNDS)
    _, (result,) = judged(case)
    assert is_dynamos(case, result)
    assert not is_dynamos(case, dataclasses.replace(result, differences=row("values", "1 of 3").differences))
    assert not is_dynamos(dataclasses.replace(case, backend="eager-none"), result)


def answer_of(*verdicts: tuple[Result, bool] | None, failure: tuple[str, str] | None = None) -> Answer:
    """A worker's answer on rows of which each ends with nothing to say, or with a verdict that passes or not."""
    lines: list[dict[str, object]] = []
    for verdict in verdicts:
        lines.append({"begins": ["programs.8", "train"]})
        if verdict is not None:
            lines.append({"row": dataclasses.asdict(verdict[0]), "passes": verdict[1]})
        lines.append({"ended": 1})
    return Answer((*lines, {"begins": ["programs.8", "train"]}) if failure else tuple(lines), failure)


def rows_named(*names: str) -> list[Row]:
    """Rows in the order in which they are run."""
    return sorted((Row(PROGRAM, "", name, "train", "right") for name in names), key=place_of)


WRONGLY = (row("values", "1 of 3 elements"), False)
"""A verdict that accuses a right backend, and that nothing explains."""


def test_alarms_are_counted_by_what_they_are() -> None:
    explained, unsettled = (WRONGLY[0], True), (row("values", "eager's own error", "reference-unstable"), False)
    begun = rows_named("1", "2", "3", "4", "5")
    answer = answer_of(WRONGLY, explained, unsettled, None, failure=("crash", "signal 11"))
    found = alarms_of(answer, begun)
    assert [alarm.kind for alarm in found] == [WRONG, "explained", "unsettled", WRONG]
    assert [alarm.place for alarm in found] == [place_of(begun[number]) for number in (0, 1, 2, 4)]
    watched = added(Watched("right", "programs"), begun, answer, 1.0)
    assert watched.counts() == {"rows": 5, "same": 1, "unsettled": 1, "accused": 3, "wrong": 2, "mended": 0}
    assert totals([watched, watched])["wrong"] == 4


def test_rows_accused_wrongly_are_counted_once_and_mended_where_they_are_no_longer() -> None:
    first = rows_named("1", "2", "3")
    watched = added(Watched("right", "programs"), first, answer_of(WRONGLY, None, WRONGLY), 1.0)
    assert watched.reached == place_of(first[-1])
    again = added(watched, [first[0], first[2]], answer_of(None, WRONGLY), 1.0)
    assert again.counts() == {"rows": 3, "same": 2, "unsettled": 0, "accused": 1, "wrong": 1, "mended": 1}
    assert again.alarms[0].place == place_of(first[2]) and again.reached == watched.reached


def test_a_run_goes_on_behind_the_rows_that_its_report_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[list[str]] = []

    def ask(worker: str, request: dict[str, list[list[str]]], limit_s: float, environment: object) -> Answer:
        asked.append([name for _, _, name, _, _ in request["rows"]])
        return answer_of(*[WRONGLY if name == "2" else None for name in asked[-1]])

    monkeypatch.setattr(false_alarms, "ask", ask)
    monkeypatch.setattr(false_alarms, "BLOCKS", {"programs": 2})
    rows = rows_named(*map(str, range(6)))
    facts = {"torch": "2", "level": DEFAULT}
    cut_short = next(watch(Watched("right", "programs"), rows))
    report = json.loads(json.dumps(document([cut_short], facts)))
    (before,) = read(report, facts)
    assert before == cut_short
    *_, last = watch(before, rows[::-1])
    wrong = [name for name in asked[0] if name == "2"]
    assert sorted(name for block in asked for name in block) == sorted([*(each.name for each in rows), *wrong])
    assert last.rows == 6 and last.counts()["wrong"] == 1
    with pytest.raises(ValueError, match="its level is default, and not nightly"):
        read(report, facts | {"level": "nightly"})


def test_a_run_that_is_cut_short_has_rows_of_every_suite(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(false_alarms, "BLOCKS", dict.fromkeys(false_alarms.BLOCKS, 3))
    monkeypatch.setattr(false_alarms, "ask", lambda _, request, *__: answer_of(*[None for _ in request["rows"]]))
    found = list(itertools.islice(watch_all(QUICK, "eager-none"), 5))
    assert [each.suite for each in found[:4]] == ["programs", "semantics", "zoo", "ops"]
    assert found[4].suite == "programs" and found[4].rows > found[0].rows


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
