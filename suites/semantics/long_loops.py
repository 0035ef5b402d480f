"""Loops that are cut: longer than a vector, a block or a part, by lengths that leave a rest."""

from __future__ import annotations

import torch
from torch import Tensor

from assay.harness.case import Made
from assay.suites.semantics.program import program

long = "long-loops"


@program(long)
def sums_over_everything_over_rows_and_over_columns() -> Made:
    """So many elements that what is over everything is made in parts."""

    def f(x: Tensor) -> tuple[Tensor, ...]:
        return x.sum(), x.amax(), x.sum(0), x.sum(1), x.mean(), x.amin(0), x.square().sum(1)

    return f, (torch.rand(301, 300) + 1,), {}


@program(long)
def sums_of_the_last_rows_and_columns_alone() -> Made:
    """All before them are zeros, so that nothing else hides what is left out."""

    def f(x: Tensor) -> tuple[Tensor, ...]:
        return x.sum(), x.sum(0), x.sum(1), x.amax(), x.argmax()

    x = torch.zeros(301, 300)
    x[-1], x[:, -1] = 1.0, 2.0
    return f, (x,), {}


@program(long)
def rows_and_columns_of_transposed_operands() -> Made:
    """In squares, of which the last ones are not whole."""

    def f(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        return x.t() + y, (y * 2).t().contiguous()

    return f, (torch.randn(100, 70), torch.randn(70, 100)), {}


@program(long)
def norms_of_rows_of_an_odd_length() -> Made:
    def f(x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
        return torch.nn.functional.layer_norm(x, (131,), w), x.softmax(1).cumsum(1)

    return f, (torch.randn(9, 131, requires_grad=True), torch.ones(131, requires_grad=True)), {}


@program(long)
def clamped_places_of_long_rows() -> Made:
    """Padded, shifted, and divided by what may be negative."""

    def f(x: Tensor) -> tuple[Tensor, ...]:
        padded = torch.nn.functional.pad(x[None], (3, 5), mode="reflect")[0]
        pooled = torch.nn.functional.avg_pool1d(x[None], 3, 2, 1)[0]
        return padded, pooled, x.roll(7, 1), x.flip(1), torch.cat([x, x], 1), x[:, -100:] * 2, x[:, -9:] * 2

    return f, (torch.randn(2, 83, requires_grad=True),), {}


@program(long)
def lookups_and_updates_of_many_places() -> Made:
    def f(x: Tensor, at: Tensor) -> tuple[Tensor, Tensor]:
        return x[at], torch.zeros(40, 3).index_add(0, at, x[at] * 2)

    return f, (torch.randn(40, 3, requires_grad=True), torch.arange(200) * 7 % 40), {}


@program(long)
def scan_along_a_row_of_thousands() -> Made:
    """What is summed up to each element of a row that no program holds at once goes on from part to part."""
    return lambda x: x.cumsum(-1), (torch.rand(2, 9000),), {}
