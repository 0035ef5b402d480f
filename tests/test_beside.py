"""A step of the gradient between two right programs is no difference; a wrong program is one, on either side."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from harness.backends import Backend
from harness.beside import LEAST_NUMBERS, NOTE
from harness.case import Case, Made
from harness.run import run_case

Program = Callable[..., Any]


class Steps(nn.Module):
    """Gradients of its parameters are 100 where a number is above 1, and 0 elsewhere."""

    def __init__(self, count: int, nearest: float) -> None:
        super().__init__()
        numbers = torch.linspace(0.2, 1.8, count)
        numbers[(numbers - 1).abs() < 1e-3] = 1.5
        numbers[7] = nearest
        self.numbers = nn.Parameter(numbers)

    def forward(self, shift: Tensor) -> Tensor:
        return (self.numbers - 1 + shift).relu().mul(100).sum()


def case_of(count: int, nearest: float) -> Case:
    def make() -> Made:
        return Steps(count, nearest), (torch.zeros(()),), {}

    return Case("steps", make, ("train",), (), ("tiny",))


def halved(module: Program) -> Program:
    """Gives half of each gradient."""

    def run(shift: Tensor) -> Tensor:
        result = module(shift)
        return result * 0.5 + result.detach() * 0.5

    return run


JUST_ABOVE = 1.0 + 2**-23
"""The least float32 above 1."""


def verdict(
    wrap: Callable[[Program], Program], count: int, nearest: float = JUST_ABOVE, **asked: bool
) -> tuple[str, str]:
    row = run_case(case_of(count, nearest), "train", Backend("other", wrap), timed=False, **asked)
    return row.verdict, row.detail


def stepped(module: Program) -> Program:
    """On the other side of the step at the one number that is next to it, and nowhere else."""

    def run(shift: Tensor) -> Tensor:
        near = (module.numbers - 1).detach().abs() < 1.5 * 2**-23
        return ((module.numbers - 1 + shift).relu() * ~near).mul(100).sum() + near.sum() * 0.0

    return run


def test_step_of_the_gradient_is_judged_beside() -> None:
    found, told = verdict(stepped, LEAST_NUMBERS)
    assert (found, told) == ("same", NOTE)


@pytest.mark.parametrize("count", [LEAST_NUMBERS, 64])
def test_wrong_gradient_differs_beside_too(count: int) -> None:
    assert verdict(halved, count)[0] == "diverged"


def test_small_program_is_judged_where_it_is() -> None:
    """Its numbers may have been chosen to lie there."""
    assert verdict(stepped, 64)[0] == "diverged"


@pytest.mark.parametrize(("asked", "expected"), [({}, "diverged"), ({"looks_beside": True}, "same")])
def test_quick_look_is_beside_only_where_that_is_asked_for(asked: dict[str, bool], expected: str) -> None:
    assert verdict(stepped, LEAST_NUMBERS, quick=True, **asked)[0] == expected
