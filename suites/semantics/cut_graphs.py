"""Programs whose graph is cut into pieces."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.utils import checkpoint

from assay.harness.case import Made
from assay.suites.semantics.program import inner, leaf, numbers, program

cut = "cut"


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


@program(cut)
def complex_view_of_reals_that_goes_on_behind_a_cut() -> Made:
    """Torch makes no fake tensor of such a view, so that Dynamo itself takes none as an input."""

    def f(x: Tensor) -> tuple[Tensor, ...]:
        z = torch.view_as_complex(x.mT)
        w = x.new_zeros(1).expand(3)
        w.zero_()
        return w.sum() + x, torch.view_as_real(z) * 2, z.real.sin()

    return f, (torch.randn(4, 2).t(),), {}


@program(cut)
def data_of_overlapping_inputs_written() -> Made:
    """Autograd does not learn of the write, so that backward reads what forward kept as it is then."""

    def f(x: Tensor, part: Tensor, w: Tensor) -> tuple[Tensor, ...]:
        y = x.sin() * w
        part.data.add_(1)
        return y.sum() + x.exp(), (w.cos() * 2).sin()

    base = inner(6)
    return f, (base, base[1:4], leaf(6)), {}


@program(cut)
def data_of_an_intermediate_written_beside_a_cut() -> Made:
    def f(x: Tensor, w: Tensor) -> tuple[Tensor, ...]:
        h = (x * w).exp()
        z = x.detach().new_zeros(1).expand(3)
        z.zero_()
        h.data.view(-1)[1:].mul_(2)
        return h.sum() + z.sum(), (w * x).tanh() * 2

    return f, (leaf(4), leaf(4)), {}


@program(cut)
def data_written_of_inputs_that_autograd_does_not_know_as_one() -> Made:
    def f(x: Tensor, alias: Tensor, w: Tensor) -> tuple[Tensor, ...]:
        y = x * x
        alias[1:].mul_(2)
        alias.data.add_(w.detach())
        return y, alias.sum() * w, (w.sin() + 1).exp()

    x = leaf(4)
    return f, (x, x.detach(), leaf(4)), {}


@program(cut)
def data_written_in_a_checkpoint_beside_a_cut() -> Made:
    def f(x: Tensor, w: Tensor) -> Tensor:
        def region(v: Tensor) -> Tensor:
            u = v.exp()
            u.data.mul_(2)
            return u * w

        z = x.detach().new_zeros(1).expand(3)
        z.zero_()
        h = checkpoint.checkpoint(region, x * w, use_reentrant=False)
        return h.cos() * z.sum() + (x * w).sin()

    return f, (leaf(4), leaf(4)), {}
