"""Numbers that autocast rounded to bfloat16 on their way, judged in float32: what is held, and what is excused."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from assay.harness.calls.clone import nudged
from assay.harness.judge.tolerance import DIFFERS, EXCUSED, Evidence, explain, is_same

COUNT = 512


def drawn(error: float) -> tuple[Tensor, Tensor]:
    """The float64 numbers, and eager's, which are off by so much of their size."""
    generator = torch.Generator().manual_seed(0)
    truth = torch.randn(COUNT, dtype=torch.float64, generator=generator)
    return truth, (truth + error * torch.randn(COUNT, dtype=torch.float64, generator=generator)).float()


def evidence(truth: Tensor, eager: Tensor, rounded: torch.dtype | None) -> Evidence:
    """Neighbours of eager's have its bits: autocast rounds away by what they are moved."""
    return Evidence(truth, samples=lambda: [eager.clone(), eager.clone()], rounded=rounded)


@pytest.mark.parametrize("error", [0.02, 0.3])
def test_autocast_excuses_what_rounds_no_more_than_eager_does(error: float) -> None:
    truth, eager = drawn(error)
    ours = truth.float()
    assert is_same(explain(ours, eager, evidence(truth, eager, torch.bfloat16)))
    found = explain(ours, eager, evidence(truth, eager, None))
    assert found is not None and found.kind == DIFFERS, "without autocast its neighbours show that eager is steady"


def test_autocast_says_where_eager_is_no_oracle() -> None:
    truth, eager = drawn(0.3)
    found = explain(truth.float(), eager, evidence(truth, eager, torch.bfloat16))
    assert found is not None and found.kind == EXCUSED and "under autocast eager's own error is 0.3" in found.text


@pytest.mark.parametrize("error", [0.02, 0.3])
@pytest.mark.parametrize("wrong", ["one element", "negated", "zero"])
def test_autocast_holds_elements_to_the_bound(error: float, wrong: str) -> None:
    truth, eager = drawn(error)
    ours = {"negated": -truth, "zero": truth * 0, "one element": truth.clone()}[wrong].float()
    if wrong == "one element":
        ours[77] += 10 * float((eager.double() - truth).abs().max())
    found = explain(ours, eager, evidence(truth, eager, torch.bfloat16))
    assert found is not None and found.kind == DIFFERS


def test_autocast_does_not_reach_float64() -> None:
    precision = Evidence(rounded=torch.bfloat16).precision
    assert precision(torch.float64).epsilon == torch.finfo(torch.float64).eps
    assert precision(torch.float32).epsilon == precision(torch.float16).epsilon == torch.finfo(torch.bfloat16).eps


def test_neighbours_are_a_rounding_of_autocast_away_but_for_those_in_float64() -> None:
    epsilon = torch.finfo(torch.bfloat16).eps
    for dtype, moved in ((torch.float32, epsilon), (torch.float64, torch.finfo(torch.float64).eps)):
        one = torch.full((64,), 2.0, dtype=dtype)
        steps = (nudged(0, least=epsilon)(one) - one) / one
        assert set(steps.tolist()) == {moved, -moved}
