"""Programs that once excused any fault: each is run by right backends and by wrong ones, as an ordinary row is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from assay.harness.backends.registry import Backend
from assay.harness.case import case
from assay.harness.run import RunRequest, run_case

NOW = 1.7e9
"""A Unix time in seconds; neighbouring float32 numbers are 128 apart there."""
Program = Callable[..., Any]


def instead(program: Program) -> Backend:
    """A backend that runs another program in the place of the one that it is given."""
    return Backend("instead", lambda function: lambda *args: program(function, *args))


@case()
def halves() -> Any:
    layers = nn.Sequential(nn.Linear(64, 64), nn.GELU(), nn.Linear(64, 64), nn.GELU(), nn.Linear(64, 64))
    return layers.to(torch.bfloat16), (torch.randn(16, 64).to(torch.bfloat16),), {}


@case()
def beside_a_time() -> Any:
    def program(time: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        return time * 2, x.sin()

    return program, (NOW + 128 * torch.arange(64.0), torch.randn(64)), {}


@case()
def of_times() -> Any:
    return torch.sin, (NOW + 128 * torch.arange(256.0),), {}


@case()
def of_angles() -> Any:
    def program(time: Tensor, speed: Tensor) -> Tensor:
        return torch.sin(time * speed)

    return program, (NOW + 128 * torch.arange(256.0), torch.rand(256)), {}


@case()
def masked() -> Any:
    def program(scores: Tensor, is_hidden: Tensor) -> Tensor:
        return scores.masked_fill(is_hidden, torch.finfo(torch.float32).min).softmax(-1)

    return program, (torch.randn(8, 64), torch.ones(8, 64).triu(32).bool()), {}


@case()
def added_up() -> Any:
    return (lambda x: x.sum(-1)), (torch.randn(16, 4096),), {}


def in_float32(layers: Program, x: Tensor) -> Tensor:
    result = x.float()
    for layer in layers:  # type: ignore[attr-defined]
        wide = layer if not list(layer.parameters()) else None
        result = wide(result) if wide else nn.functional.linear(result, layer.weight.float(), layer.bias.float())
    return result.to(x.dtype)


def without_their_sum(program: Program, scores: Tensor, is_hidden: Tensor) -> Tensor:
    shifted = scores.masked_fill(is_hidden, torch.finfo(torch.float32).min)
    powers = (shifted - shifted.amax(-1, keepdim=True)).exp()
    return powers / powers.flip(-1).sum(-1, keepdim=True)


RIGHT = [
    (halves, in_float32),
    (beside_a_time, lambda program, time, x: (time + time, x.double().sin().to(x.dtype))),
    (of_times, lambda program, time: time.double().sin().to(time.dtype)),
    (masked, without_their_sum),
    (added_up, lambda program, x: x.flip(-1).sum(-1)),
    (added_up, lambda program, x: x.view(-1, 64, 64).sum(1).sum(-1)),
]
WRONG = [
    (halves, lambda program, x: program(x) * 0.7),
    (halves, lambda program, x: program(x) * 1.2),
    (beside_a_time, lambda program, time, x: (program(time, x)[0], program(time, x)[1] * 1.2)),
    (beside_a_time, lambda program, time, x: (program(time, x)[0], torch.zeros_like(x))),
    (of_times, lambda program, time: -program(time)),
    (of_times, lambda program, time: torch.zeros_like(time)),
    (of_angles, lambda program, time, speed: -program(time, speed)),
    (of_angles, lambda program, time, speed: torch.zeros_like(time)),
    (of_angles, lambda program, time, speed: program(time, speed) * 0.7),
    (masked, lambda program, scores, is_hidden: program(scores, is_hidden) * 0.7),
    (masked, lambda program, scores, is_hidden: scores.softmax(-1)),
    (added_up, lambda program, x: x[:, 1:].sum(-1)),
    (added_up, lambda program, x: program(x) * (1 + 1e-5)),
]


@pytest.mark.parametrize(("program", "other"), RIGHT)
def test_what_computes_the_same_in_another_way_is_same(program: Any, other: Program) -> None:
    assert run_case(program, "infer", instead(other), RunRequest(timed=False)).verdict == "same"


@pytest.mark.parametrize(("program", "other"), WRONG)
def test_what_is_wrong_beside_large_numbers_is_never_same(program: Any, other: Program) -> None:
    verdict = run_case(program, "infer", instead(other), RunRequest(timed=False)).verdict
    assert verdict == "diverged" if program is not of_angles else verdict in ("diverged", "reference-unstable")
