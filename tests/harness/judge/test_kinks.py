"""Elements across a kink are excused where their operand is a rounding away from it, and nowhere else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from assay.harness.backends.registry import Backend
from assay.harness.case import Made, case
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
