"""Branches and loops of user functions: `cond`, `while_loop`, `scan`, `map`, `associative_scan`."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch._higher_order_ops import map as map_rows
from torch._higher_order_ops import scan, while_loop
from torch._higher_order_ops.associative_scan import associative_scan

from assay.harness.case import Made
from assay.suites.semantics.program import leaf, numbers, program

loops = "loops"
INFER = ("infer",)


@program(loops)
def branch_by_a_sum() -> Made:
    def f(x: Tensor, w: Tensor) -> Tensor:
        y = torch.cond(x.sum() > 0, lambda a, b: a @ b, lambda a, b: (a * 2) @ b.t(), (x, w))
        return y.sin()  # type: ignore[no-any-return]

    return f, (leaf(3, 3), leaf(3, 3)), {}


@program(loops)
def branch_that_leaves_an_operand_unread() -> Made:
    def f(x: Tensor, w: Tensor) -> Tensor:
        return torch.cond(x.sum() > 0, lambda a, b: a.sin(), lambda a, b: b.cos() * 2, (x, w)) * x  # type: ignore[no-any-return]

    return f, (leaf(3, 3), leaf(3, 3)), {}


@program(loops)
def branch_within_a_branch() -> Made:
    def f(x: Tensor, w: Tensor) -> Tensor:
        def small(a: Tensor) -> Any:
            return torch.cond(a.sum() > 1, lambda b: b.exp() * w, lambda b: b * w, (a,))

        return torch.cond(x.sum() > 0, small, lambda a: a + w, (x,))  # type: ignore[no-any-return]

    return f, (leaf(3, 3), leaf(3, 3)), {}


@program(loops)
def branch_by_a_flag_that_changes() -> Made:
    class Gate(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.other = nn.Linear(3, 3), nn.Linear(3, 3)

        def forward(self, x: Tensor, flag: Tensor) -> Tensor:
            return torch.cond(flag, self.one, self.other, (x,)) * 2  # type: ignore[no-any-return]

    return Gate(), (leaf(2, 3), torch.tensor(True)), {}


@program(loops)
def branches_of_several_results() -> Made:
    def f(x: Tensor) -> tuple[Tensor, Tensor]:
        a, b = torch.cond(x.sum() > 0, lambda y: (y * 2, y.sum()), lambda y: (y.sin(), y.mean()), (x,))
        return a + 1, b

    return f, (leaf(4),), {}


@program(loops, modes=INFER)
def loop_that_counts() -> Made:
    def f(x: Tensor) -> Any:
        return while_loop(lambda i, a: i < 5, lambda i, a: (i + 1, (a * 0.9).sin()), (torch.tensor(0), x * 2))

    return f, (numbers(4),), {}


@program(loops, modes=INFER)
def loop_that_ends_by_its_values() -> Made:
    def f(x: Tensor, w: Tensor) -> Any:
        (a,) = while_loop(lambda a: a.abs().sum() > 1, lambda a: (a * 0.5 + w * 0.01,), (x,))
        return a + w

    return f, (numbers(4) * 8, numbers(4)), {}


@program(loops)
def scan_of_a_recurrent_cell() -> Made:
    def f(state: Tensor, xs: Tensor, w: Tensor) -> Any:
        def step(carried: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
            new = torch.tanh(carried @ w + x)
            return new, new * 2

        return scan(step, state, xs)

    return f, (leaf(2, 3), leaf(4, 2, 3), leaf(3, 3)), {}


@program(loops)
def scan_from_the_end() -> Made:
    def f(state: Tensor, xs: Tensor) -> Any:
        return scan(lambda c, x: (c * 0.5 + x, c.sin()), state, xs, reverse=True)

    return f, (leaf(3), leaf(4, 3)), {}


@program(loops)
def scan_whose_last_state_is_used_alone() -> Made:
    def f(state: Tensor, xs: Tensor) -> Tensor:
        last, _ = scan(lambda c, x: (c * x.cos(), c * 2), state, xs)
        return last.exp()  # type: ignore[no-any-return]

    return f, (leaf(3), leaf(5, 3)), {}


@program(loops)
def map_over_rows() -> Made:
    def f(xs: Tensor, y: Tensor) -> Any:
        return map_rows(lambda x, y: (x * y).sum(-1).cos(), xs, y)  # type: ignore[arg-type]

    return f, (leaf(4, 3), leaf(3)), {}


@program(loops, modes=INFER)
def associative_scan_of_sums() -> Made:
    def f(x: Tensor) -> Any:
        return associative_scan(lambda a, b: a + b, x * 2, dim=0, combine_mode="generic")

    return f, (numbers(5, 3),), {}


@program(loops, modes=INFER)
def associative_scan_of_a_linear_recurrence() -> Made:
    """What a state-space model computes: a state that decays, and takes in an input, at each step."""

    def f(decay: Tensor, x: Tensor) -> Any:
        def joined(one: tuple[Tensor, Tensor], other: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
            return one[0] * other[0], other[0] * one[1] + other[1]

        _, states = associative_scan(joined, (decay.sigmoid(), x), dim=0, combine_mode="generic")
        return states.tanh()

    return f, (numbers(6, 3), numbers(6, 3)), {}


@program(loops)
def branch_inside_a_scan() -> Made:
    def f(state: Tensor, xs: Tensor) -> Any:
        def step(carried: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
            new = torch.cond(x.sum() > 0, lambda c, x: c + x, lambda c, x: c * x, (carried, x))
            return new, new.sin()

        return scan(step, state, xs)

    return f, (leaf(3), leaf(4, 3)), {}
