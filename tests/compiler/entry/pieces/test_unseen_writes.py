"""Writes through `.data`: all that reads or makes the written memory runs in eager, and the rest is compiled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils import checkpoint

from assay.compiler import journal
from assay.compiler.entry.pieces.parts import units_of
from assay.compiler.entry.pieces.unseen_writes import has_unseen_writes, units_of_unseen_writes
from tests.compiler.entry.pieces.test_parts import graph_of


def names_in_eager(f: Callable[..., Any], *args: Tensor, overlap: bool = True) -> list[str]:
    """The functions that the units of unseen writes begin with."""
    gm = graph_of(f, *args)
    units = units_of(gm.graph)
    found = units_of_unseen_writes(gm, units, args, overlap)
    return [str(getattr(units[index][0].target, "__name__", units[index][0].target)) for index in sorted(found)]


def of_an_intermediate(x: Tensor, w: Tensor) -> Tensor:
    y = x.exp()
    z = y.view(-1)
    y.data.unsqueeze(0).add_(1)
    return z.sum() + w.cos().sum() + x.sin().sum()


def of_an_input(x: Tensor, w: Tensor) -> Tensor:
    y = x.exp() * w.cos()
    x.data.add_(1)
    return y


def inside_a_region(x: Tensor, w: Tensor) -> Tensor:
    def region(v: Tensor) -> Tensor:
        u = v.exp()
        u.data.mul_(2)
        return u

    y = w.sin() * 2
    return checkpoint.checkpoint(region, x, use_reentrant=False).cos() + y


def test_units_are_those_of_the_written_memory() -> None:
    x, w = torch.randn(3, requires_grad=True), torch.randn(3, requires_grad=True)
    assert names_in_eager(of_an_intermediate, x, w) == ["exp", "view", "_get_data_attr", "unsqueeze", "add_", "sum"]
    assert names_in_eager(of_an_input, x, w) == ["exp", "_get_data_attr", "add_"]


def test_units_of_an_input_are_those_of_all_that_share_its_memory() -> None:
    x = torch.randn(3, requires_grad=True)
    assert names_in_eager(of_an_input, x, x.view(1, 3)) == ["exp", "cos", "_get_data_attr", "add_"]


def test_units_of_inputs_that_may_share_memory_later() -> None:
    x, w = torch.randn(3, requires_grad=True), torch.randn(3, requires_grad=True)
    assert names_in_eager(of_an_input, x, w, overlap=False) == ["exp", "cos", "_get_data_attr", "add_"]


def test_units_of_a_region_that_writes() -> None:
    x, w = torch.randn(3, requires_grad=True), torch.randn(3, requires_grad=True)
    found = names_in_eager(inside_a_region, x, w)
    assert len(found) == 2 and found[1] == "cos"


def test_nothing_is_unseen_where_autograd_records_nothing() -> None:
    x, w = torch.randn(3), torch.randn(3)
    assert names_in_eager(of_an_input, x, w) == []
    gm = graph_of(of_an_input, x, w)
    assert not has_unseen_writes(gm, [x, w])
    assert has_unseen_writes(gm, [x, w.requires_grad_()])


@pytest.mark.parametrize("overlaps", (False, True))
def test_gradients_read_what_was_written_unseen(overlaps: bool) -> None:
    """The graph is cut at a node that overlaps itself, called with inputs of their own memory, and then with shared."""

    def f(x: Tensor, w: Tensor) -> Tensor:
        z = x.detach().new_zeros(1).expand(3)
        z.zero_()
        y = x.sin() * w.exp() + z.sum()
        w.data.add_(1)
        return y + (z + 1).cos().sum()

    torch._dynamo.reset()
    journal.reset()
    compiled = torch.compile(f, backend="assay")
    for share in (False, overlaps):
        gradients = []
        for run in (f, compiled):
            base = torch.linspace(0, 1, 6, requires_grad=True)
            inner = base * 1
            other = inner if share else base * 2
            found = run(inner[:3], other[1:4])
            (gradient,) = torch.autograd.grad(found.sum(), base)
            gradients.append((found.detach(), gradient))
        torch.testing.assert_close(gradients[1], gradients[0])
    assert journal.totals()["eager_graphs"] == 0 and journal.totals()["nodes_generated"] > 0
