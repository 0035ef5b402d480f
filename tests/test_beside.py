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


class TwoSteps(Steps):
    """As `Steps`, with others of its own."""

    def __init__(self) -> None:
        super().__init__(LEAST_NUMBERS, JUST_ABOVE)
        self.others = nn.Parameter(self.numbers.detach().clone())

    def forward(self, shift: Tensor) -> Tensor:
        return super().forward(shift) + (self.others - 1 + shift).relu().mul(100).sum()


def test_each_of_many_steps_is_judged_where_eager_and_it_are_on_one_side() -> None:
    """Here it is on the other side with one gradient, on neighbouring numbers with the other one."""

    def stepped_elsewhere(module: Program, is_always: bool = False) -> Program:
        def run(shift: Tensor) -> Tensor:
            is_given = bool(module.numbers[7] == JUST_ABOVE)
            sides = [torch.ones(LEAST_NUMBERS), torch.ones(LEAST_NUMBERS)]
            if is_given or is_always:
                sides[0][7] = 0.0
            else:
                sides[1][-1] = 0.0
            total = torch.zeros(())
            for numbers, side in zip((module.numbers, module.others), sides, strict=True):
                above = (numbers - 1 + shift).relu()
                total = total + (above * side + (above * (1 - side)).detach()).mul(100).sum()
            return total

        return run

    def found(wrap: Callable[[Program], Program]) -> str:
        made = Case("two steps", lambda: (TwoSteps(), (torch.zeros(()),), {}), ("train",), (), ("tiny",))
        return run_case(made, "train", Backend("other", wrap), timed=False).verdict

    assert found(stepped_elsewhere) == "same"
    assert found(lambda module: stepped_elsewhere(module, is_always=True)) == "diverged"


@pytest.mark.parametrize(("asked", "expected"), [({}, "diverged"), ({"looks_beside": True}, "same")])
def test_quick_look_is_beside_only_where_that_is_asked_for(asked: dict[str, bool], expected: str) -> None:
    assert verdict(stepped, LEAST_NUMBERS, quick=True, **asked)[0] == expected
