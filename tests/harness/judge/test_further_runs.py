"""How many further runs of eager a judgement makes: none, two, or more, and through how many acts."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from assay.harness import run as running
from assay.harness.backends.registry import Backend
from assay.harness.case import Case, Made
from assay.harness.judge import compare as comparing
from assay.harness.judge.eager_runs import EagerRuns
from assay.harness.judge.oracle import is_alike
from assay.harness.observe.scripts import Scripts
from assay.harness.outcome import Result
from assay.harness.protocol.acts import DEFAULT, needed_for
from assay.harness.run import RunRequest, made_call, run_case

Nudged = list[tuple[int, int]]
"""Of each run on neighbouring numbers: its number, and how many acts it goes through."""


def layers() -> Made:
    return nn.Sequential(nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 64)), (torch.randn(16, 64),), {}


@pytest.fixture
def nudged(monkeypatch: pytest.MonkeyPatch) -> Nudged:
    found: Nudged = []
    nudge = EagerRuns._nudge

    def noted(self: EagerRuns, dtype: torch.dtype | None, moves_whole: bool, index: int, rounded: Any) -> Any:
        found.append((index, self.count))
        return nudge(self, dtype, moves_whole, index, rounded)

    monkeypatch.setattr(EagerRuns, "_nudge", noted)
    return found


class Counting(nn.Module):
    """Adds to its result how often it was called before."""

    calls: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(64, 64)
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.layer(x) + self.calls
        self.calls += 1
        return result


def counting() -> Made:
    return Counting(), (torch.randn(16, 64),), {}


class OneToken(nn.Module):
    """Normalizes a row of one number, as the token of a class is at first, beside rows of the input."""

    def __init__(self) -> None:
        super().__init__()
        self.token = nn.Parameter(torch.full((1, 64), 0.03))
        self.place = nn.Parameter(torch.full((17, 64), 0.02))
        self.norm = nn.LayerNorm(64, eps=1e-12)
        self.layer = nn.Linear(64, 64)

    def forward(self, x: Tensor) -> Tensor:
        rows = torch.cat([self.token, x]) + self.place
        result: Tensor = self.layer(self.norm(rows)).tanh().mean(0)
        return result


def one_token() -> Made:
    return OneToken(), (torch.randn(16, 64),), {}


def run(change: Callable[[Tensor, int], Tensor], make: Callable[[], Made] = layers) -> Result:
    """A row of a backend whose result of each call is changed; it is told the number of the call."""

    def wrap(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
        calls = iter(range(1, 1000))
        return lambda *args: change(function(*args), next(calls))

    case = Case("layers", make, ("infer",), (), ("tiny",))
    return run_case(case, "infer", Backend("changed", wrap), RunRequest(protocol=DEFAULT["infer"], timed=False))


def test_runs_are_none_for_what_is_equal(nudged: Nudged) -> None:
    assert run(lambda result, call: result).verdict == "same"
    assert nudged == []


def test_float64_run_is_of_what_is_not_eagers_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """None where all is within a few units in the last place; else up to the act in question, and its numbers alone."""
    made: list[tuple[int, int]] = []
    wide = EagerRuns.wide

    def noted(self: EagerRuns) -> Any:
        found = wide(self)
        assert not isinstance(found, str)
        made.append((len(found), sum(len(seen.outputs) for seen in found)))
        return found

    monkeypatch.setattr(EagerRuns, "wide", noted)
    assert run(lambda result, call: result).verdict == "same"
    assert run(lambda result, call: result * (1 + 2e-7)).verdict == "same"
    assert made == []
    assert run(lambda result, call: result * 1.1 if call == 3 else result).verdict == "diverged"
    assert made[0] == (3, 1), "one act in question, the third"


def test_runs_are_few_for_what_differs_for_sure(nudged: Nudged) -> None:
    assert run(lambda result, call: result * 1.1).verdict == "diverged"
    assert {index for index, _ in nudged} <= {0, 1, 2, 3}, "no more runs are made of a field that is lost"


def test_runs_on_neighbouring_numbers_keep_a_row_of_one_number() -> None:
    """Its neighbours have a variance, whose root is what a norm divides by: only where equal numbers stay equal is a
    run the same computation, that shows how far roundings go."""
    case = Case("one_token", one_token, ("train",), (), ("tiny",))
    made = made_call(case, "tiny", 0, "cpu")
    scripts = Scripts(case, "train", DEFAULT["train"][:1], made, lambda which: made_call(case, "tiny", which, "cpu"))
    runs = EagerRuns(made, scripts, "train", 0, draws=False)

    def off(moves_freely: bool) -> float:
        nudged = runs.nudged(None, moves_freely, 0)
        assert nudged is not None
        pairs = zip(nudged[0].outputs.values(), runs.plain()[0].outputs.values(), strict=True)
        return max(float((one.value - other.value).abs().max()) for one, other in pairs)

    assert off(moves_freely=True) > 1e-4 and 0 < off(moves_freely=False) < 1e-6


def test_runs_go_through_the_acts_in_question_alone(nudged: Nudged) -> None:
    assert run(lambda result, call: result * 1.1 if call == 3 else result).verdict == "diverged"
    assert nudged and {count for _, count in nudged} == {1}


def test_runs_go_through_all_acts_before_where_these_matter(nudged: Nudged) -> None:
    assert run(lambda result, call: result * 1.1 if call == 3 else result, counting).verdict == "diverged"
    assert nudged and {count for _, count in nudged} == {3}


def test_acts_need_those_that_they_go_back_from_or_add_to() -> None:
    acts = DEFAULT["train"]
    assert needed_for(acts, {0}) == {0}
    assert needed_for(acts, {2}) == {1, 2}, "it adds to the gradients of the act before, in its tensors"
    assert needed_for(acts, {5}) == {3, 4, 5}, "it goes back from the call before the last"
    assert needed_for(acts, {10}) == {9, 10} and needed_for(acts, {13}) == {13}
    assert needed_for(DEFAULT["infer"], {1}) == {0, 1}


@pytest.mark.parametrize("indices", [(2,), (5, 7), (10,), (12,), (6, 13)])
def test_acts_alone_give_what_they_give_among_all(indices: tuple[int, ...]) -> None:
    case = Case("layers", layers, ("train",), (), ("tiny",))
    made = made_call(case, "tiny", 0, "cpu")
    scripts = Scripts(case, "train", DEFAULT["train"], made, lambda which: made_call(case, "tiny", which, "cpu"))
    runs = EagerRuns(made, scripts, "train", 0, draws=False)
    whole, parts = runs.plain(), runs.of(needed_for(scripts.acts, indices)).plain()
    for index in indices:
        for path, seen in whole[index].gradients.items():
            part = parts[index].gradients[path]
            assert seen is None or (part is not None and torch.equal(seen.value, part.value)), path


def test_runs_keep_the_tensors_in_question_alone() -> None:
    case = Case("layers", layers, ("train",), (), ("tiny",))
    made = made_call(case, "tiny", 0, "cpu")
    scripts = Scripts(case, "train", DEFAULT["train"], made, lambda which: made_call(case, "tiny", which, "cpu"))
    runs = EagerRuns(made, scripts, "train", 0, draws=False)
    whole = runs.plain()
    path = next(iter(whole[1].gradients))
    kept = EagerRuns(made, scripts, "train", 0, draws=False).keeping({(1, "gradient", path): None})
    run = kept.plain()
    assert [list(run[step].gradients) for step in (0, 1, 2)] == [[], [path], []]
    assert not any(seen.state or seen.earlier for seen in run.values())
    assert not any(seen.outputs for seen in run.values()), "results hold numbers too, unless these are whole"
    seen, before = run[1].gradients[path], whole[1].gradients[path]
    assert seen is not None and before is not None and torch.equal(seen.value, before.value)


def test_runs_that_keep_more_serve_those_that_keep_less() -> None:
    case = Case("layers", layers, ("infer",), (), ("tiny",))
    made = made_call(case, "tiny", 0, "cpu")
    scripts = Scripts(case, "infer", DEFAULT["infer"], made, lambda which: made_call(case, "tiny", which, "cpu"))
    runs = EagerRuns(made, scripts, "infer", 0, draws=False)
    which, place = torch.arange(3), (1, "mutation", "input[0]")
    first = runs.keeping({(0, "mutation", "input[0]"): None, place: which}).plain()
    assert runs.keeping({place: which}).plain() is first
    assert runs.of(frozenset({0, 1})).keeping({place: which}).plain() is first
    assert runs.keeping({place: torch.arange(3)}).plain() is not first, (
        "these are other elements, for all that is known"
    )
    assert runs.keeping({(2, "mutation", "input[0]"): None}).plain() is not first
    assert runs.plain() is not first, "all of it was asked for"


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
    assert nudged and {count for _, count in nudged} == {1}


@pytest.mark.parametrize("factor", [1.0, 1.1], ids=["right", "wrong"])
def test_compare_ends_at_the_first_difference_where_one_is_asked_for(
    factor: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is as `compare` has it, whether something differs; of a wrong run one tensor of many is judged."""
    runs: list[tuple[Any, ...]] = []
    judged: list[int] = []
    explain = comparing.explain

    def noted(oracle: Any, ours: Any, rules: Any) -> Any:
        runs.append((oracle, ours, rules))
        return comparing.compare(oracle, ours, rules)

    def counted(*args: Any) -> Any:
        judged[-1] += 1
        return explain(*args)

    monkeypatch.setattr(running, "compare", noted)
    run(lambda y, call: y * factor)
    monkeypatch.setattr(comparing, "explain", counted)
    (asked,) = runs
    judged.append(0)
    differs = bool(comparing.compare(*asked).different)
    judged.append(0)
    assert comparing.is_different(*asked) == differs == (factor != 1.0)
    in_full, in_brief = judged
    assert in_brief < in_full if differs else in_brief == in_full


def test_runs_take_eagers_path_though_a_gpu_came_into_use_since() -> None:
    case = Case("layers", layers, ("infer",), (), ("tiny",))
    made = made_call(case, "tiny", 0, "cpu")
    scripts = Scripts(case, "infer", DEFAULT["infer"], made, lambda which: made_call(case, "tiny", which, "cpu"))
    run = EagerRuns(made, scripts, "infer", 0, draws=False).plain()[0]
    later = dataclasses.replace(run, random={**run.random, "torch.cuda:0": "a state"})
    drawn = dataclasses.replace(run, random={**run.random, "torch.cpu": "another state"})
    assert is_alike((later,), (run,)) and is_alike((run,), (later,))
    assert not is_alike((drawn,), (run,))
