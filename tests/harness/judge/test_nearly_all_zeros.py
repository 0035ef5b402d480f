"""A tensor that is nearly all zeros is judged by its other elements first, and by all where these are not the same."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from assay.harness.judge import tolerance
from assay.harness.judge.tolerance import LARGE, Evidence, Finding, explain

SHAPE = (LARGE // 64, 64)
ROWS = [3, 500, 900]


def gradient(seed: int = 0) -> Tensor:
    """In float64, the gradient of an embedding of which three rows are used."""
    generator = torch.Generator().manual_seed(seed)
    made = torch.zeros(SHAPE, dtype=torch.float64)
    made[ROWS] = torch.randn(3, 64, dtype=torch.float64, generator=generator)
    return made


def rounded(truth: Tensor, seed: int, ulps: float = 2.0) -> Tensor:
    """In float32, the numbers off by so many roundings."""
    generator = torch.Generator().manual_seed(seed)
    return (truth * (1 + ulps * 2**-23 * torch.randn(truth.shape, dtype=torch.float64, generator=generator))).float()


def judged(change: Callable[[Tensor], object], runs: int = 0) -> Finding | None:
    truth = gradient()
    eager, ours = rounded(truth, 1), rounded(truth, 2)
    change(ours)
    samples = [rounded(truth, 3 + index) for index in range(runs)]
    return explain(ours, eager, Evidence(truth, samples=lambda: samples))


def test_explain_looks_at_few_elements_of_what_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    judged_at: list[int] = []
    judge = tolerance.explain_reals

    def noted(ours: Tensor, *rest: object) -> Finding | None:
        judged_at.append(ours.numel())
        return judge(ours, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(tolerance, "explain_reals", noted)
    assert judged(lambda ours: None) is None
    assert judged_at == [3 * 64 + 2 * tolerance.LIKE]


@pytest.mark.parametrize("place", [(0, 0), (500, 7), (1023, 63)])
@pytest.mark.parametrize("runs", [0, 4])
def test_explain_finds_a_wrong_element_wherever_it_is(place: tuple[int, int], runs: int) -> None:
    found = judged(lambda ours: ours[place].add_(1e-3), runs)
    assert found is not None and found.kind == tolerance.DIFFERS
    assert f"1 of {LARGE} elements; the worst at {list(place)}" in found.text


def test_explain_finds_the_sign_of_a_zero() -> None:
    truth = gradient()
    eager = truth.float()
    ours = eager.clone()
    ours[7, 7] = -0.0
    found = explain(ours, eager, Evidence(truth))
    assert found is not None and "the sign of zero differs in 1" in found.text


def test_explain_takes_no_bound_from_a_run_that_is_not_zero_elsewhere() -> None:
    numel, places = LARGE, torch.arange(10)
    run = torch.zeros(numel)
    run[:10] = 1.0
    evidence = Evidence(None, samples=lambda: [run, run.index_fill(0, torch.tensor([99]), 1.0)])
    assert [sample.numel() for sample in evidence.beside(places, numel).samples()] == [10, 0]
