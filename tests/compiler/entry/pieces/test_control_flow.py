"""Branches and loops: compiled bodies, eager's values and gradients."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._higher_order_ops import map as mapped
from torch._higher_order_ops import scan, while_loop

from assay.compiler import journal

Program = Callable[..., Tensor]


def branches(x: Tensor, w: Tensor) -> Tensor:
    y = x * 2
    return torch.cond(y.sum() > 0, lambda a: (a @ w).relu() + a, lambda a: (a * w).sin(), (y,)).cos()


def branches_that_read_other_operands(x: Tensor, w: Tensor) -> Tensor:
    return torch.cond(x.sum() > 0, lambda a, b: a.sin(), lambda a, b: b.cos() * 2, (x, w))


def branches_in_branches(x: Tensor, w: Tensor) -> Tensor:
    def inner(a: Tensor) -> Tensor:
        return torch.cond(a.sum() > 5, lambda b: b.exp() * w, lambda b: b * w, (a,))

    return torch.cond(x.sum() > 0, inner, lambda a: a + w, (x,))


def a_loop(x: Tensor, w: Tensor) -> Tensor:
    _, a = while_loop(lambda i, a: i < 5, lambda i, a: (i + 1, (a * 0.9).sin()), (torch.tensor(0), x @ w))
    return a.relu() + 1


def a_loop_without_steps(x: Tensor, w: Tensor) -> Tensor:
    _, a = while_loop(lambda i, a: i < 0, lambda i, a: (i + 1, (a * 0.9).sin()), (torch.tensor(0), x @ w))
    return a.relu() + 1


def a_scan(x: Tensor, w: Tensor) -> Tensor:
    def step(carried: Tensor, row: Tensor) -> tuple[Tensor, Tensor]:
        new = (carried * 0.5 + row).tanh()
        return new, new * 2

    carried, rows = scan(step, x[0] * 0, x @ w, dim=0)
    return carried + rows.sin()


def a_map(x: Tensor, w: Tensor) -> Tensor:
    return mapped(lambda row, w: (row @ w).relu(), x, w)


PROGRAMS = (
    branches,
    branches_that_read_other_operands,
    branches_in_branches,
    a_loop,
    a_scan,
    a_map,
)


@pytest.mark.parametrize("train", [False, True])
@pytest.mark.parametrize("f", PROGRAMS)
def test_bodies_are_compiled_and_as_eager(f: Program, train: bool) -> None:
    torch._dynamo.reset()
    journal.reset()
    compiled = torch.compile(f, backend="assay")
    for sign in (1, -1, 1):
        x, w = sign * torch.rand(4, 4), torch.randn(4, 4)
        ours, theirs = _observed(compiled, x, w, train), _observed(f, x, w, train)
        for mine, other in zip(ours, theirs, strict=True):
            assert (mine is None) == (other is None)
            if mine is not None and other is not None:
                assert mine.stride() == other.stride()
                torch.testing.assert_close(mine, other)
    counted = journal.totals()
    assert counted["eager_graphs"] == counted["cuts"] == 0 and not counted["eager"]


def test_a_loop_without_steps_passes_gradients_on() -> None:
    """Eager's while_loop, which torch differentiates by a formula of its own, gives wrong ones here."""
    x, w = torch.ones(4, 4, requires_grad=True), torch.ones(4, 4, requires_grad=True)
    torch._dynamo.reset()
    torch.compile(a_loop_without_steps, backend="assay")(x, w).sum().backward()
    assert torch.equal(x.grad, torch.full((4, 4), 4.0))  # type: ignore[arg-type]


def _observed(f: Program, x: Tensor, w: Tensor, train: bool) -> Sequence[Any]:
    a, b = x.clone().requires_grad_(train), w.clone().requires_grad_(train)
    with torch.set_grad_enabled(train):
        result = f(a, b)
    if train:
        result.sum().backward()
    return result.detach(), a.grad, b.grad


def test_a_branch_that_a_transform_runs_leaves_no_level_of_it() -> None:
    """Recording is refused inside of the level, which Dynamo's guards would find entered yet."""

    def f(x: Tensor, w: Tensor) -> Tensor:
        return torch.vmap(lambda row: torch.cond(torch.tensor(True), lambda r: r @ w, lambda r: r * 1.0, (row,)))(x)

    torch._dynamo.reset()
    compiled = torch.compile(f, backend="assay")
    for train in (False, False, True, True):
        x, w = torch.randn(6, 4), torch.randn(4, 4)
        for mine, other in zip(_observed(compiled, x, w, train), _observed(f, x, w, train), strict=True):
            assert (mine is None) == (other is None)
            if mine is not None and other is not None:
                torch.testing.assert_close(mine, other)
    assert torch._C._functorch.get_dynamic_layer_stack_depth() == 0


def test_branches_that_call_one_region_are_no_cut() -> None:
    region = torch.compiler.nested_compile_region(lambda x, w: (x @ w).sin())

    def f(x: Tensor, w: Tensor) -> Any:
        return torch.cond(x.sum() > 0, lambda a, b: region(a, b) + 1, lambda a, b: region(a * 2, b), (x, w))

    torch._dynamo.reset()
    journal.reset()
    compiled = torch.compile(f, backend="assay")
    for sign in (1, -1):
        x, w = sign * torch.rand(4, 4), torch.randn(4, 4)
        torch.testing.assert_close(compiled(x, w), f(x, w))
    counted = journal.totals()
    assert not counted["cuts"] and not counted["eager"]
