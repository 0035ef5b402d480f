"""Which graphs are to be recorded as CUDA graphs: where hooks take gradients, none unless the user asks."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import assay
from assay.compiler.ir.graph.roles import GraphCall
from assay.compiler.toolchain import serialized_call


@pytest.fixture
def wanted(monkeypatch: pytest.MonkeyPatch) -> list[bool | None]:
    """Whether the user wants a recording of each graph that is built, as `replayed` is told."""
    told: list[bool | None] = []

    def replayed(graph: GraphCall, what: object, wants: bool | None) -> GraphCall:
        told.append(wants)
        return graph

    monkeypatch.setattr(serialized_call, "replayed", replayed)
    return told


def forget(parameter: Tensor) -> None:
    parameter.grad = None


def layers(has_hooks: bool) -> nn.Module:
    made = nn.Sequential(nn.Linear(4, 4), nn.GELU(), nn.Linear(4, 4))
    for parameter in made.parameters() if has_hooks else ():
        parameter.register_post_accumulate_grad_hook(forget)
    return made


@pytest.mark.parametrize(
    ("has_hooks", "asked", "expected"), [(False, None, None), (True, None, False), (True, True, True)]
)
def test_recordings_leave_gradients_to_hooks(
    has_hooks: bool, asked: bool | None, expected: bool | None, wanted: list[bool | None]
) -> None:
    compiled = torch.compile(layers(has_hooks), backend="assay", options={"cudagraphs": asked})
    compiled(torch.randn(3, 4)).sum().backward()
    assert wanted and set(wanted) == {expected}


def test_recordings_leave_gradients_to_hooks_of_a_whole_backward(wanted: list[bool | None]) -> None:
    """The parts between hooks, which have options of their own."""

    def backward(module: nn.Module) -> set[bool | None]:
        compiled = torch.compile(module, backend="assay")
        with assay.compiled_autograd():
            loss = compiled(torch.randn(3, 4)).sum()
            wanted.clear()
            loss.backward()
        return set(wanted)

    assert backward(layers(has_hooks=False)) == {None}
    assert backward(layers(has_hooks=True)) == {False}
