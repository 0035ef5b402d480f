"""How many further runs of eager a judgement makes: none, two, or more, and through how many acts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from assay.harness.backends.registry import Backend
from assay.harness.case import Case, Made
from assay.harness.judge.eager_runs import EagerRuns
from assay.harness.outcome import Result
from assay.harness.protocol.acts import DEFAULT
from assay.harness.run import RunRequest, run_case

Nudged = list[tuple[int, int]]
"""Of each run on neighbouring numbers: its number, and how many acts it goes through."""


def layers() -> Made:
    return nn.Sequential(nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 64)), (torch.randn(16, 64),), {}


@pytest.fixture
def nudged(monkeypatch: pytest.MonkeyPatch) -> Nudged:
    found: Nudged = []
    nudge = EagerRuns._nudge

    def noted(self: EagerRuns, dtype: torch.dtype | None, moves_whole: bool, index: int) -> Any:
        found.append((index, self.count))
        return nudge(self, dtype, moves_whole, index)

    monkeypatch.setattr(EagerRuns, "_nudge", noted)
    return found


def run(change: Callable[[Tensor, int], Tensor]) -> Result:
    """A row of a backend whose result of each call is changed; it is told the number of the call."""

    def wrap(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
        calls = iter(range(1, 1000))
        return lambda *args: change(function(*args), next(calls))

    case = Case("layers", layers, ("infer",), (), ("tiny",))
    return run_case(case, "infer", Backend("changed", wrap), RunRequest(protocol=DEFAULT["infer"], timed=False))


def test_runs_are_none_for_what_is_equal(nudged: Nudged) -> None:
    assert run(lambda result, call: result).verdict == "same"
    assert nudged == []


def test_runs_are_few_for_what_differs_for_sure(nudged: Nudged) -> None:
    assert run(lambda result, call: result * 1.1).verdict == "diverged"
    assert {index for index, _ in nudged} <= {0, 1, 2, 3}, "no more runs are made of a field that is lost"


def test_runs_go_as_far_as_what_is_in_question(nudged: Nudged) -> None:
    assert run(lambda result, call: result * 1.1 if call == 3 else result).verdict == "diverged"
    assert nudged and {count for _, count in nudged} == {3}


def test_runs_are_made_for_each_step_that_differs() -> None:
    result = run(lambda result, call: result * 1.1 if call in (2, 5) else result)
    steps = {each.path.partition(":")[0] for each in result.differences if each.field == "values"}
    assert steps == {"step 2", "step 5"}


def test_runs_of_the_first_acts_have_the_numbers_of_these(nudged: Nudged) -> None:
    """A program that is called with another Python number each time."""

    def scaled() -> Made:
        return (lambda x, n: x.sin() * n), (torch.randn(32),), {}

    def wrap(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
        return lambda x, n: function(x, n) * (1.1 if n == 3.0 else 1.0)

    case = Case("scaled", scaled, ("infer",), (), ("tiny",), numbers=((2.0,), (3.0,), (4.0,)))
    result = run_case(case, "infer", Backend("changed", wrap), RunRequest(timed=False))
    assert result.verdict == "diverged" and {each.path.partition(":")[0] for each in result.differences} == {"step 2"}
    assert nudged and {count for _, count in nudged} == {2}
