"""Programs with branches, loops, scans and attention with a score function, and graphs that are cut into pieces."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch._higher_order_ops import associative_scan, scan, while_loop
from torch._higher_order_ops import map as mapped
from torch.nn.attention.flex_attention import flex_attention

from assay.harness.case import Made
from assay.suites.semantics.program import inner, integers, leaf, numbers, program

branch, loop, cut = "branch", "loop", "cut"


@program(branch)
def branch_by_data() -> Made:
    def f(x: Tensor, w: Tensor) -> Tensor:
        y = x * 2
        return torch.cond(y.sum() > 0, lambda a: (a @ w).relu() + a, lambda a: (a * w).sin(), (y,)).cos()

    return f, (numbers(3, 3), leaf(3, 3)), {}


@program(branch)
def branches_that_read_other_operands() -> Made:
    def f(x: Tensor, w: Tensor) -> Tensor:
        return torch.cond(x.sum() > 0, lambda a, b: a.sin(), lambda a, b: b.cos() * 2, (x, w))

    return f, (leaf(3), leaf(3)), {}


@program(branch)
def branch_with_several_results() -> Made:
    def f(x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
        y, z = torch.cond(w.sum() > 0, lambda a: (a.exp(), a.sum(0)), lambda a: (a * 2, a.prod(0)), (x,))
        return y + z, z

    return f, (leaf(3, 2), numbers(2)), {}


@program(branch)
def branch_over_parameters() -> Made:
    class Gated(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.two = nn.Linear(3, 3), nn.Linear(3, 3)

        def forward(self, x: Tensor) -> Tensor:
            return torch.cond(x.mean() > 0, self.one, self.two, (x,)).relu()

    return Gated(), (numbers(2, 3),), {}


@program(branch)
def branch_by_an_integer_of_the_users() -> Made:
    def f(x: Tensor, n: Tensor) -> Tensor:
        return torch.cond(n.item() > 0, lambda a: a * 3, lambda a: a - 1, (x,))

    return f, (leaf(3), integers()), {}


@program(branch)
def branch_in_front_of_a_write() -> Made:
    def f(x: Tensor, w: Tensor) -> Tensor:
        y = torch.cond(w.sum() > 0, lambda a: a.sin(), lambda a: a.cos(), (w,))
        x.mul_(2)
        return y * x

    return f, (numbers(3), leaf(3)), {}


@program(branch)
def dropout_in_a_branch() -> Made:
    def f(x: Tensor) -> Tensor:
        y = nn.functional.dropout(x, 0.5)
        z = torch.cond(x.sum() > 0, lambda a: torch.rand_like(a) * a, lambda a: a + torch.rand_like(a), (y,))
        return nn.functional.dropout(z, 0.5)

    return f, (leaf(8),), {}


@program(loop)
def loop_until_a_condition() -> Made:
    def f(x: Tensor, w: Tensor) -> Tensor:
        step, y = while_loop(lambda i, a: i < 4, lambda i, a: (i + 1, (a * 0.9).sin()), (torch.tensor(0), x @ w))
        return y.relu() + step

    return f, (numbers(3, 3), numbers(3, 3)), {}


@program(loop)
def loop_until_data_say() -> Made:
    def f(x: Tensor) -> Tensor:
        (y,) = while_loop(lambda a: a.abs().max() > 0.5, lambda a: (a * 0.7,), (x,))
        return y * 2

    return f, (numbers(5),), {}


@program(loop)
def loop_without_a_step() -> Made:
    def f(x: Tensor) -> tuple[Tensor, Tensor]:
        step, y = while_loop(lambda i, a: i < 0, lambda i, a: (i + 1, a * 2), (torch.tensor(0), x))
        return step, y

    return f, (numbers(3),), {}


@program(loop)
def scan_with_a_carry() -> Made:
    def f(x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
        def step(carried: Tensor, row: Tensor) -> tuple[Tensor, Tensor]:
            new = (carried * 0.5 + row).tanh()
            return new, new * 2

        carried, rows = scan(step, x[0] * 0, x @ w, dim=0)
        return carried, rows.sin()

    return f, (leaf(5, 3), leaf(3, 3)), {}


@program(loop)
def scan_backwards() -> Made:
    def f(x: Tensor) -> tuple[Tensor, Tensor]:
        def step(carried: Tensor, row: Tensor) -> tuple[Tensor, Tensor]:
            return carried + row, carried * row

        carried, rows = scan(step, x[0] * 0, x, dim=0, reverse=True)
        return carried, rows

    return f, (leaf(4, 2),), {}


@program(loop)
def scan_of_several_tensors() -> Made:
    def f(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        def step(carried: tuple[Tensor, Tensor], rows: tuple[Tensor, Tensor]) -> tuple[tuple[Tensor, Tensor], Tensor]:
            (a, b), (p, q) = carried, rows
            return (a * 0.5 + p, b + q), a * q

        (a, b), rows = scan(step, (x[0] * 0, y[0] * 0), (x, y), dim=0)
        return a, b, rows

    return f, (leaf(4, 3), leaf(4, 3)), {}


@program(loop)
def scan_of_a_state_space() -> Made:
    """h = a h + b x, y = c h, as a linear recurrence of a state-space model has it."""

    def f(x: Tensor, a: Tensor, b: Tensor, c: Tensor) -> Tensor:
        def step(h: Tensor, row: Tensor) -> tuple[Tensor, Tensor]:
            new = a.sigmoid() * h + b * row
            return new, (c * new).sum(-1)

        _, rows = scan(step, torch.zeros(3, 4) + x[0, :, None] * 0, x.unsqueeze(-1), dim=0)
        return rows

    return f, (leaf(5, 3), leaf(3, 4), leaf(3, 4), leaf(3, 4)), {}


@program(loop)
def associative_scan_of_products() -> Made:
    def f(x: Tensor) -> Tensor:
        return associative_scan(lambda a, b: a * b, x.sin(), dim=0, combine_mode="generic").cos()

    return f, (leaf(6, 3),), {}


@program(loop)
def map_over_rows() -> Made:
    def f(x: Tensor, w: Tensor) -> Tensor:
        return mapped(lambda row, w: (row @ w).relu(), x, w)  # type: ignore[arg-type]

    return f, (leaf(4, 3), leaf(3, 3)), {}


@program(loop)
def map_within_a_branch() -> Made:
    def f(x: Tensor, w: Tensor) -> Tensor:
        def rows(a: Tensor) -> Tensor:
            return mapped(lambda row, w: row * w, a, w)  # type: ignore[arg-type]

        return torch.cond(w.sum() > 0, rows, lambda a: a + w, (x,))

    return f, (numbers(4, 3), numbers(3)), {}


@program("attention", modes=("infer",))
def attention_with_a_score_of_positions() -> Made:
    def f(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return flex_attention(q, k, v, score_mod=lambda s, b, h, i, j: s + (i - j) * 0.1)  # type: ignore[return-value]

    return f, (numbers(1, 2, 8, 4), numbers(1, 2, 8, 4), numbers(1, 2, 8, 4)), {}


@program("attention", modes=("infer",))
def attention_with_a_captured_bias() -> Made:
    def f(q: Tensor, bias: Tensor) -> Tensor:
        return flex_attention(q, q, q, score_mod=lambda s, b, h, i, j: s * bias[h] + bias[h] * (i >= j))  # type: ignore[return-value]

    return f, (numbers(2, 2, 8, 4), numbers(2)), {}


@program(cut)
def expanded_memory_written_in_between() -> Made:
    def f(x: Tensor, w: Tensor) -> Tensor:
        y = (x @ w).relu()
        z = y.detach().new_zeros(1).expand(3)
        z.zero_()
        return (y.sin() * 2 + z.sum()).cos()

    return f, (leaf(3, 3), leaf(3, 3)), {}


@program(cut)
def cut_within_no_grad() -> Made:
    def f(x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
        with torch.no_grad():
            z = x.new_zeros(1).expand(3)
            z.zero_()
            scale = (x * 2).sum() + z.sum()
        y = x[1:] * w[1:]
        return y * scale, x.view(-1)[::2]

    return f, (inner(4), leaf(4)), {}


@program(cut)
def cut_within_autocast() -> Made:
    def f(x: Tensor, w: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = x @ w
            z = x.detach().new_zeros(1).expand(3)
            z.zero_()
            return (y @ w).float() + z.sum()

    return f, (numbers(4, 4), numbers(4, 4)), {}


@program(cut)
def random_numbers_around_a_cut() -> Made:
    def f(x: Tensor) -> Tensor:
        y = nn.functional.dropout(x, 0.5)
        z = x.detach().new_zeros(1).expand(3)
        z.zero_()
        return nn.functional.dropout(y, 0.5) * torch.rand_like(x) + z.sum()

    return f, (leaf(8),), {}


@program(cut)
def input_written_on_both_sides_of_a_cut() -> Made:
    def f(x: Tensor, w: Tensor) -> Tensor:
        x.mul_(2)
        z = x.detach().new_zeros(1).expand(3)
        z.zero_()
        x.add_(w)
        return x * z.sum() + w

    return f, (numbers(3), leaf(3)), {}


@program(cut)
def views_across_a_cut() -> Made:
    def f(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        y = x.sin()
        top = y[:2]
        z = x.detach().new_zeros(1).expand(3)
        z.zero_()
        top.mul_(3)
        return y, top, y.t()

    return f, (leaf(4, 3),), {}


@program(cut)
def two_cuts() -> Made:
    def f(x: Tensor) -> Tensor:
        z = x.detach().new_zeros(1).expand(3)
        z.zero_()
        y = x.exp() + z.sum()
        u = x.detach().new_ones(1).expand(2, 2)
        u.fill_(3)
        return y * u.sum()

    return f, (leaf(3),), {}
