"""What the programs of this suite are declared with."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from assay.harness.case import MODES, SHAPES, Case, Made, case


def program(
    *tags: str, modes: tuple[str, ...] = MODES, scenario: Callable[..., Any] | None = None
) -> Callable[[Callable[..., Made]], Case]:
    """Declares a case of this suite: with static and dynamic shapes, its bookkeeping compared to the letter."""
    return case(modes=modes, tags=("bookkeeping", *tags), shapes=SHAPES, scenario=scenario)


def leaf(*shape: int) -> Tensor:
    """A tensor that training takes the gradient of."""
    return torch.randn(shape, requires_grad=True)


def inner(*shape: int) -> Tensor:
    """A tensor that requires a gradient and is not a leaf, so that a program may write it."""
    return leaf(*shape).clone()


def numbers(*shape: int) -> Tensor:
    """A tensor that requires no gradient."""
    return torch.randn(shape)


def integers(*shape: int) -> Tensor:
    return torch.randint(-9, 9, shape)
