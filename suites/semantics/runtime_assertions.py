"""Assertions about numbers that only the data tells: each call checks them, and raises where they do not hold."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch._dynamo import config

from assay.harness.case import Made
from assay.suites.semantics.program import program

assertion = "runtime-assertion"


def _with(first: int) -> Tensor:
    return torch.tensor([float(first), 1.0, 2.0])


def _called_with(*firsts: int) -> Callable[..., Any]:
    """What the calls give, or the class of what they raise, with these numbers in turn."""

    def scenario(f: Callable[..., Any]) -> Any:
        found: list[Any] = []
        with config.patch(capture_scalar_outputs=True, capture_dynamic_output_shape_ops=True):
            for first in firsts:
                try:
                    found.append(f(_with(first)))
                except RuntimeError as error:
                    found.append(type(error).__name__)
        return found

    return scenario


def _number(x: Tensor) -> int:
    return int(x[0].item())


@program(assertion, scenario=_called_with(3, 3, 4))
def number_is_one_that_is_known() -> Made:
    def f(x: Tensor) -> Tensor:
        n = _number(x)
        torch._check(n == 3)
        return x + n

    return f, (), {}


@program(assertion, scenario=_called_with(3, 3, -1))
def count_of_places_is_one_that_is_known() -> Made:
    """So is, from there on, how what is computed of the places lies."""

    def f(x: Tensor) -> Tensor:
        places = (x > 0).nonzero()
        torch._check(places.shape[0] == 3)
        return places + 1

    return f, (), {}


@program(assertion, scenario=_called_with(3, 3, 2))
def size_is_one_that_is_known() -> Made:
    def f(x: Tensor) -> Tensor:
        n = _number(x)
        torch._check(n == 3)
        return torch.ones(n) * x

    return f, (), {}


@program(assertion, scenario=_called_with(3, 2, 9, 1))
def number_is_between_two() -> Made:
    def f(x: Tensor) -> Tensor:
        n = _number(x)
        torch._check(n >= 2)
        torch._check(n <= 4)
        return x * n

    return f, (), {}


@program(assertion, scenario=_called_with(3, 5))
def number_is_not_another() -> Made:
    def f(x: Tensor) -> Tensor:
        n = _number(x)
        torch._check(n != 5)
        return x * n

    return f, (), {}


@program(assertion, scenario=_called_with(3, 4))
def number_is_odd() -> Made:
    def f(x: Tensor) -> Tensor:
        n = _number(x)
        torch._check(n % 2 == 1)
        return x * n

    return f, (), {}


@program(assertion, scenario=_called_with(3, -1))
def number_is_a_size() -> Made:
    def f(x: Tensor) -> Tensor:
        n = _number(x)
        torch._check(n >= 0)
        return x * n

    return f, (), {}


@program(assertion, scenario=_called_with(3, 0, 7))
def length_of_a_mask_is_known() -> Made:
    def f(x: Tensor) -> Tensor:
        found = x[x > 0]
        torch._check(found.shape[0] == 3)
        return found + 1

    return f, (), {}


@program(assertion, scenario=_called_with(3, -3))
def elements_are_positive() -> Made:
    def f(x: Tensor) -> Tensor:
        torch._assert_async((x > 0).all(), "positive")
        return x.log()

    return f, (), {}
