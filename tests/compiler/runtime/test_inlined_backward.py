"""Compiled backwards inside of a backward that torch's own compiled autograd compiles, as one graph of Dynamo's."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import pytest
import torch
from torch import Tensor, nn


def _compiled(f: Any, dynamic: bool | None = None) -> Any:
    return torch.compile(f, backend="assay", dynamic=dynamic, options={"fallback": "error"})


def _layers() -> Iterator[Tensor]:
    model = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2))
    compiled = _compiled(model, dynamic=True)
    for rows in (2, 5, 7):
        compiled(torch.randn(rows, 4)).sum().backward()
        yield from (parameter.grad for parameter in model.parameters())  # type: ignore[misc]
        model.zero_grad()


def _written_state() -> Iterator[Tensor]:
    model = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3), nn.GELU())
    compiled = _compiled(model)
    for _ in range(2):
        compiled(torch.randn(6, 4)).pow(2).mean().backward()
        yield from (parameter.grad.clone() for parameter in model.parameters())  # type: ignore[union-attr]
        yield from (buffer.clone() for buffer in model.buffers())


def _one_of_two_results() -> Iterator[Tensor]:
    compiled = _compiled(lambda x: (x.sin(), x.exp()))
    for index in (0, 1, 0):
        x = torch.randn(3, requires_grad=True)
        compiled(x)[index].sum().backward()
        yield x.grad  # type: ignore[misc]


def _twice() -> Iterator[Tensor]:
    compiled = _compiled(lambda x: x.sin() * 2)
    x = torch.randn(3, requires_grad=True)
    y = compiled(x).sum()
    for _ in range(2):
        y.backward(retain_graph=True)
        yield x.grad.clone()  # type: ignore[union-attr]


PROGRAMS = [_layers, _written_state, _one_of_two_results, _twice]


def _run(program: Callable[[], Iterator[Tensor]], around: AbstractContextManager[object]) -> list[Tensor]:
    torch._dynamo.reset()
    torch.manual_seed(0)
    with around:
        return [each.detach().clone() for each in program()]


@pytest.mark.parametrize("program", PROGRAMS)
def test_an_inlined_backward_is_the_engines(program: Callable[[], Iterator[Tensor]]) -> None:
    wanted = _run(program, nullcontext())
    whole = torch._dynamo.compiled_autograd._enable(_one_graph)
    torch.testing.assert_close(_run(program, whole), wanted)


def _one_graph(gm: torch.fx.GraphModule) -> Any:
    return torch.compile(gm, backend="eager", fullgraph=True)
