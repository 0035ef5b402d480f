"""What a run keeps in memory: each copy of numbers once, and of a float64 run no more than is still asked for."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from assay.harness.backends.registry import Backend
from assay.harness.case import case
from assay.harness.judge import oracle
from assay.harness.judge.oracle import Oracle
from assay.harness.observe.observation import WITHOUT_POKES, Observation, Watch, observe
from assay.harness.observe.scripts import Scripts
from assay.harness.protocol.acts import FEW
from assay.harness.run import DEFAULT_REQUEST, RunRequest, made_call, run_case


class Tied(nn.Module):
    """Two layers that share a weight, and a bias that the program writes."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Linear(8, 8, bias=False), nn.Linear(8, 8, bias=False)
        self.two.weight = self.one.weight
        self.register_buffer("seen", torch.zeros(8))

    def forward(self, x: Tensor) -> Tensor:
        self.seen.add_(x.detach().mean(0))
        return self.two(self.one(x)).cos()


@case(modes=("infer", "train"))
def tied(size: str) -> Any:
    return Tied(), (torch.randn(4, 8),), {}


def observed(watch: Watch = WITHOUT_POKES) -> tuple[Scripts, tuple[Observation, ...]]:
    call = made_call(tied, "tiny", 0, "cpu")
    scripts = Scripts(tied, "train", FEW["train"], call, lambda which: made_call(tied, "tiny", which, "cpu"))
    return scripts, observe(scripts.script(), "train", 0, watch=watch)


def test_tied_parameters_are_copied_once() -> None:
    _, run = observed()
    for seen in run:
        for values in (seen.state, seen.gradients):
            one, two = values["parameter.one.weight"], values["parameter.two.weight"]
            assert one is not None and two is not None and one.value is two.value


def test_state_that_nobody_writes_is_kept_as_what_it_was_given() -> None:
    scripts, run = observed()
    given = [dict(scripts.script().pristine), *(scripts.script().state(which, False) for which in (1, 2))]
    for seen, numbers in zip(run, given, strict=True):
        kept, own = seen.state["parameter.one.weight"].value, numbers["parameter.one.weight"]
        assert kept.data_ptr() == own.data_ptr() and torch.equal(kept, own)
        assert "buffer.seen" in seen.written and seen.state["buffer.seen"].value is not numbers.get("buffer.seen")
    assert not torch.equal(run[0].state["buffer.seen"].value, run[1].state["buffer.seen"].value)


def test_a_run_that_is_asked_for_one_gradient_looks_at_no_other() -> None:
    place = (1, "gradient", "parameter.two.weight")
    _, run = observed(Watch(is_poked=False, is_brief=True, places={place: None}))
    _, whole = observed()
    assert [list(seen.gradients) for seen in run] == [[], ["parameter.two.weight"], []]
    one, other = run[1].gradients["parameter.two.weight"], whole[1].gradients["parameter.two.weight"]
    assert one is not None and other is not None and torch.equal(one.value, other.value)
    assert not any(seen.earlier for seen in run) and whole[1].earlier


def scaled(by: float) -> Backend:
    """A backend whose results are off by that factor."""
    return Backend("scaled", lambda function: lambda *args: function(*args) * by)


@pytest.mark.parametrize("by", [1.0, 1 + 2e-7, 1.01])
@pytest.mark.parametrize("mode", ["infer", "train"])
def test_verdicts_are_the_same_where_the_float64_run_lets_go(
    mode: str, by: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    lets_go = Oracle.keep_at

    def keep_at(self: Oracle, places: Any) -> None:
        lets_go(self, places)
        for step, seen in enumerate(self.wide or ()):
            assert isinstance(seen, Observation)
            kept = {(step, "values", path) for path in seen.outputs}
            kept |= {(step, "gradient", path) for path in seen.gradients}
            assert kept <= places.keys()

    whole = run_case(tied, mode, scaled(by), RunRequest(timed=False))
    monkeypatch.setattr(oracle, "LARGE_BYTES", 0)
    monkeypatch.setattr(Oracle, "keep_at", keep_at)
    parts = run_case(tied, mode, scaled(by), RunRequest(timed=False, seed=DEFAULT_REQUEST.seed))
    assert (parts.verdict, parts.differences) == (whole.verdict, whole.differences)
    assert parts.verdict == ("diverged" if by > 1.001 else "same")
