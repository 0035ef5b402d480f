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
def scan_of_a_state_space_model() -> Made:
    """Parameters are captured, the rows are several tensors, and gradients flow to all of them."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.decay, self.skip = nn.Parameter(-torch.rand(4, 3)), nn.Parameter(torch.rand(4))

        def forward(self, xs: Tensor, deltas: Tensor, into: Tensor, out: Tensor) -> Tensor:
            def step(state: Tensor, row: tuple[Tensor, ...]) -> tuple[Tensor, Tensor]:
                x, delta, b, c = row
                state = torch.exp(delta[:, None] * self.decay) * state + (delta * x)[:, None] * b
                return state, (state * c).sum(-1) + self.skip * x

            return scan(step, xs.new_zeros(4, 3), (xs, deltas, into, out))[1]  # type: ignore[no-any-return]

    return Model(), (leaf(6, 4), leaf(6, 4), leaf(6, 3), leaf(6, 3)), {}


@program(loops)
def scan_with_structures() -> Made:
    def f(x: Tensor, xs: Tensor, ys: Tensor) -> Any:
        def step(carried: dict[str, Any], row: list[Tensor]) -> tuple[dict[str, Any], dict[str, Tensor]]:
            one, (other,) = carried["one"], carried["more"]
            one = (one + row[0]).tanh()
            return {"one": one, "more": (other * 0.5 + one.sum(),)}, {"a": one * other, "b": row[1] * 2}

        return scan(step, {"one": x, "more": (x.sum(),)}, [xs, ys])

    return f, (leaf(3), leaf(5, 3), leaf(5, 2)), {}


@program(loops)
def scan_along_the_last_dimension() -> Made:
    return lambda c, xs: scan(lambda c, x: (c * 0.5 + x, c * x), c, xs, dim=1), (leaf(3), leaf(3, 5)), {}


@program(loops)
def scan_whose_rows_are_used_alone() -> Made:
    def f(state: Tensor, xs: Tensor) -> Tensor:
        _, rows = scan(lambda c, x: (c * 0.5 + x, (c * x).sin()), state, xs)
        return rows * 2  # type: ignore[no-any-return]

    return f, (leaf(3), leaf(5, 3)), {}


@program(loops)
def scan_whose_state_is_the_last_row() -> Made:
    """No gradient flows to the first state, nor through any step but the last one: theirs are of zeros."""
    return lambda c, xs: scan(lambda c, x: (x.sin(), c * 2), c, xs)[0], (leaf(3), leaf(5, 3)), {}


@program(loops)
def scan_with_a_product() -> Made:
    """A step that calls ATen."""

    def f(state: Tensor, xs: Tensor, w: Tensor) -> Any:
        return scan(lambda c, x: ((c @ w).tanh() + x, (w @ x.t()).relu()), state, xs)

    return f, (leaf(2, 3), leaf(4, 2, 3), leaf(3, 3)), {}


@program(loops, modes=INFER)
def scan_that_draws_numbers() -> Made:
    def f(state: Tensor, xs: Tensor) -> Any:
        return scan(lambda c, x: (c + x, nn.functional.dropout(x, 0.5)), state, xs)

    return f, (numbers(3), numbers(4, 3)), {}


@program(loops)
def map_over_several_operands() -> Made:
    def f(xs: Tensor, ys: Tensor, w: Tensor) -> Any:
        return map_rows(lambda row, w: (row[0] * w + row[1], row[1].sum()), (xs, ys), w)  # type: ignore[arg-type]

    return f, (leaf(4, 3), leaf(4, 3), leaf(3)), {}


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
