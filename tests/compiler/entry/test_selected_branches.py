"""Loops whose steps hold branches are one call: both branches are computed, and one is chosen."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch._higher_order_ops import map as mapped
from torch._higher_order_ops import scan, while_loop

from assay.compiler import journal


def scanned(x: Tensor) -> Tensor:
    def step(carried: Tensor, row: Tensor) -> tuple[Tensor, Tensor]:
        total = carried + row
        chosen = torch.cond(total.sum() > 0, lambda c, r: (c + r).sin(), lambda c, r: torch.sqrt(c * r), (carried, row))
        return chosen.nan_to_num(0.5), chosen * 1

    return scan(step, x[0], x)[1]  # type: ignore[no-any-return]


def turned(x: Tensor) -> Tensor:
    def body(i: Tensor, a: Tensor) -> tuple[Tensor, Tensor]:
        return i + 1, torch.cond(a.sum() > 0, lambda a: a.sin() - 0.3, lambda a: a.cos(), (a,))

    return while_loop(lambda i, a: i < 5, body, (torch.tensor(0), x))[1]  # type: ignore[no-any-return]


def each_row(x: Tensor) -> Tensor:
    return mapped(lambda row: torch.cond(row.sum() > 0, torch.sin, lambda row: row * 2, (row,)), x)  # type: ignore[no-any-return]


def divided(x: Tensor) -> Tensor:
    """Integers are divided in one branch, which eager refuses for the rows that take the other."""
    return mapped(  # type: ignore[no-any-return]
        lambda row: torch.cond((row != 0).all(), lambda row: 12 // row, lambda row: row + 1, (row,)), x.long()
    )


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("program", [scanned, turned, each_row])
def test_a_loop_with_branches_is_one_call_without_gradients(
    program: Callable[[Tensor], Tensor], dynamic: bool | None
) -> None:
    torch._dynamo.reset()
    journal.reset()
    compiled = torch.compile(program, backend="assay", dynamic=dynamic)
    for seed in range(3):
        x = torch.randn(6, 8, generator=torch.Generator().manual_seed(seed))
        torch.testing.assert_close(compiled(x), program(x), equal_nan=True)
    assert journal.totals()["stepwise"] == {} and journal.totals()["loops"] >= 1


def weighted(x: Tensor) -> Tensor:
    """A branch reads a value that the other does not, and has an infinite gradient where it is not taken."""
    w = x[0].exp()

    def step(carried: Tensor, row: Tensor) -> tuple[Tensor, Tensor]:
        chosen = torch.cond(
            row.sum() > 0, lambda c, r: c * w + r, lambda c, r: (r - r.detach()).abs().sqrt() + c, (carried, row)
        )
        return chosen, chosen.sum()

    return scan(step, x[0], x[1:])[1]  # type: ignore[no-any-return]


@pytest.mark.parametrize("program", [scanned, turned, each_row, weighted])
def test_a_loop_with_branches_is_one_call_with_the_gradients_of_the_branches_taken(
    program: Callable[[Tensor], Tensor],
) -> None:
    torch._dynamo.reset()
    journal.reset()
    compiled = torch.compile(program, backend="assay")
    for seed in range(3):
        x = torch.randn(6, 8, generator=torch.Generator().manual_seed(seed))
        x[0] = x[0].abs() + 0.1
        found = []
        for function in (compiled, program):
            given = x.clone().requires_grad_()
            result = function(given)
            found.append((result, *torch.autograd.grad(result.sum(), given)))
        torch.testing.assert_close(*found, equal_nan=True)
    assert journal.totals()["stepwise"] == {} and journal.totals()["loops"] >= 1


def test_a_branch_that_may_be_refused_is_not_computed_in_vain() -> None:
    torch._dynamo.reset()
    journal.reset()
    x = torch.tensor([[1.0, 2.0], [0.0, 3.0], [4.0, 0.0]])
    torch.testing.assert_close(torch.compile(divided, backend="assay")(x), divided(x))
    assert any("more than compute elements" in reason for reason in journal.totals()["stepwise"])


def test_an_unread_division_of_a_number_by_integers_is_refused_as_in_eager() -> None:
    def unread(x: Tensor) -> Tensor:
        12 // x
        return x + 1

    torch._dynamo.reset()
    compiled = torch.compile(unread, backend="assay")
    torch.testing.assert_close(compiled(torch.tensor([1, 2])), torch.tensor([2, 3]))
    for function in (unread, compiled):
        with pytest.raises(RuntimeError, match="ZeroDivisionError"):
            function(torch.tensor([1, 0]))
