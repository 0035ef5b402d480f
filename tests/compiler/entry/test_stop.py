"""A compile that stops after a state computes what eager computes; a state that does not exist is said."""

from __future__ import annotations

import pytest
import torch
from torch._dynamo.exc import BackendCompilerFailed

from assay.compiler.entry.dynamo import assay
from assay.compiler.entry.stop import states
from assay.compiler.errors import OptionError
from assay.compiler.options import Options
from assay.compiler.passes import CHOICES, PASSES

STATES = states((*PASSES, *CHOICES))


def program(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    h = torch.nn.functional.log_softmax(x @ w, -1)
    b.add_(h.detach().sum())
    return h.sum(0), h.t()


def run(compiled: object) -> list[torch.Tensor]:
    x, w = torch.arange(6.0).reshape(2, 3).sin(), torch.arange(12.0).reshape(3, 4).cos().requires_grad_()
    b = torch.ones(2)
    one, other = compiled(x, w, b)  # type: ignore[operator]
    (one.sum() + other.square().sum()).backward()
    assert w.grad is not None
    return [one, other, b, w.grad]


@pytest.mark.parametrize("state", [STATES[0], STATES[1], STATES[2], STATES[5], STATES[-2], STATES[-1]])
def test_stop_runs_what_was_made_so_far(state: str) -> None:
    ours = run(torch.compile(program, backend=assay, options={"stop_after": state, "fallback": "error"}))
    for one, other in zip(run(program), ours, strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("count", [0, 1, 2])
def test_stop_carries_out_so_many_fusions(count: int) -> None:
    ours = run(torch.compile(program, backend=assay, options={"fusions": count, "fallback": "error"}))
    for one, other in zip(run(program), ours, strict=True):
        torch.testing.assert_close(one, other)


def test_stop_names_the_states_there_are() -> None:
    with pytest.raises(BackendCompilerFailed, match="did you mean 'captured'"):
        run(torch.compile(program, backend=assay, options={"stop_after": "capture"}))
    with pytest.raises(OptionError, match="fusions"):
        Options.of({"fusions": -2}, None)
