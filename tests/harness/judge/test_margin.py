"""Positions are judged by their margin: where a rounding of eager's decided, the other side is right as well."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor, fx

from assay.harness.case import Made, case
from assay.harness.run import RunRequest, run_case


def wide(gm: fx.GraphModule, example_inputs: Sequence[object]) -> Callable[..., Any]:
    """Computes everything in float64."""
    return lambda *args: gm(*(a.double() if isinstance(a, Tensor) and a.is_floating_point() else a for a in args))


def wrong_by_one(gm: fx.GraphModule, example_inputs: Sequence[object]) -> Callable[..., Any]:
    return lambda *args: tuple(result + 1 for result in gm(*args))


@case(modes=("infer",))
def shifted_positions() -> Made:
    """The greatest two of the first row are neighbours, which float32 does not tell apart once 5 is added."""
    x = torch.rand(150, 100)
    x[0, [20, 70]] = torch.full((2,), 1.5).nextafter(torch.tensor([0.0, 9.0]))
    return lambda x: (x + 5).argmax(-1), (x,), {}


@pytest.mark.parametrize(("backend", "verdict"), [("wide", "same"), ("wrong_by_one", "diverged")])
def test_a_position_that_a_rounding_decided_may_be_either(backend: str, verdict: str) -> None:
    result = run_case(shifted_positions, "infer", f"{__name__}:{backend}", RunRequest(timed=False))
    assert result.verdict == verdict, (result.differences, result.detail)
    function, (x,), _ = shifted_positions.make("tiny")
    assert (int(function(x)[0]), int(function(x.double())[0])) == (20, 70)
