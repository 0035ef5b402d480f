"""Programs whose graph is cut into pieces, and attention with a score function."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.attention.flex_attention import flex_attention

from assay.harness.case import Made
from assay.suites.semantics.program import inner, leaf, numbers, program

cut = "cut"


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
