"""Elements across a kink are excused where their operand is a rounding away from it, and nowhere else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from assay.harness.backends.registry import Backend
from assay.harness.case import Made, case
from assay.harness.judge import kinks
from assay.harness.protocol.acts import steps
from assay.harness.run import RunRequest, run_case


@case()
def buckets() -> Made:
    """The third of some numbers, rounded down; element 0 is a rounding away from 2."""
    numbers = torch.linspace(0.4, 90.0, 300)
    numbers[0] = 6.0

    def floors(x: Tensor) -> Tensor:
        return torch.floor(x * torch.tensor(1 / 3))

    return floors, (numbers,), {}


def lowers(place: int) -> Backend:
    """A backend whose result is one less at a place."""

    def wrap(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any) -> Any:
            value = function(*args)
            value[place] -= 1
            return value

        return call

    return Backend("lowers", wrap)


@pytest.mark.parametrize(("place", "verdict"), [(0, "same"), (150, "diverged")])
def test_kinks_excuse_only_what_lies_at_a_kink(place: int, verdict: str) -> None:
    result = run_case(buckets, "infer", lowers(place), RunRequest(timed=False, protocol=steps("infer", 1)))
    assert result.verdict == verdict, result
    assert ("1 of 300 elements lie across a kink" in result.detail) == (verdict == "same")


@pytest.mark.parametrize("limits", [(1.0,), (1.0, 2.5), (-9.0, 2.0)], ids=str)
def test_kinks_of_limits_that_are_tensors_are_where_they_are_met(limits: tuple[float, ...]) -> None:
    """As in `cosine_similarity`, whose norms have a least one that is a tensor."""
    x = torch.tensor([0.5, 1.0, 2.0, 3.0])
    tensors = [x, *map(torch.tensor, limits)]
    rounding = [torch.full_like(each, 1e-6) for each in tensors]
    found = kinks.nearness(torch.ops.aten.clamp.Tensor, tensors, tensors, rounding)
    assert found[0].tolist() == [value in limits for value in x.tolist()]
    assert [each.item() for each in found[1:]] == [limit in x.tolist() for limit in limits]


@pytest.mark.parametrize(("least", "is_moved"), [(1e-3, False), (0.0, True)])
def test_kinks_move_nothing_where_no_operand_is_near(least: float, is_moved: bool) -> None:
    """One run beside eager's operands tells, so that no further ones are made."""
    x = torch.tensor([least, 2.0, -3.0])
    with (narrow := kinks.Recorded()):
        x.relu()
    with (wide := kinks.Bounded(narrow.operands)):
        x.double().relu()
    assert bool(wide.bounds()) == is_moved


def test_kinks_have_no_bounds_where_other_operators_run() -> None:
    x = torch.zeros(3)
    with (narrow := kinks.Recorded()):
        x.relu().abs()
    for run in (
        lambda y: y.relu(),
        lambda y: y.relu().abs().floor(),
        lambda y: y.abs().relu(),
        lambda y: y[:2].relu().abs(),
    ):
        with (wide := kinks.Bounded(narrow.operands)):
            run(x.double())
        assert not wide.bounds()
