"""Values that are written, or whose memory another could take, while something still reads what they were."""

from __future__ import annotations

import torch
from torch import Tensor

from assay.harness.case import Made
from assay.suites.semantics.program import program

written = "written-over"


def _mask() -> Tensor:
    return torch.tensor([[True, False, True], [False, True, True]])


@program(written)
def value_read_behind_what_is_put_into_it() -> Made:
    def f(x: Tensor, mask: Tensor, new: Tensor) -> tuple[Tensor, ...]:
        y = x + 1
        first, second = y.masked_scatter(mask, new), y.index_copy(0, torch.tensor([1], device=x.device), new[None, :3])
        return first * 2, second * 2, y * 3

    return f, (torch.randn(2, 3), _mask(), torch.randn(6)), {}


@program(written)
def value_put_into_itself() -> Made:
    def f(x: Tensor, mask: Tensor) -> tuple[Tensor, ...]:
        y, z = x + 1, x * 2
        return y.index_copy(0, torch.tensor([1, 0]), y) * 2, z.masked_scatter(mask, z) * 2

    return f, (torch.randn(2, 3), _mask()), {}


@program(written)
def written_input_of_which_a_part_is_returned() -> Made:
    def f(x: Tensor, mask: Tensor, new: Tensor) -> tuple[Tensor, Tensor]:
        before = x[1] * 1
        x.masked_scatter_(mask, new)
        return before, x[0] + before

    return f, (torch.randn(2, 3), _mask(), torch.randn(6)), {}


@program(written)
def row_read_beside_the_one_that_is_made() -> Made:
    """What the first kernel stores is no longer needed, but for other elements than the one that is made."""

    def f(x: Tensor) -> tuple[Tensor, ...]:
        y, z = x.softmax(1), (x * 2).softmax(1)
        return y + y.flip(0), z - z.roll(1, 0), x.cumsum(1).flip(1) + x.cumsum(1)

    return f, (torch.randn(6, 5, requires_grad=True),), {}


@program(written)
def columns_summed_beside_the_value_itself() -> Made:
    def f(x: Tensor) -> tuple[Tensor, Tensor]:
        y = x.softmax(1)
        return y / y.sum(0), y.amax(0) - x

    return f, (torch.randn(40, 33, requires_grad=True),), {}


@program(written)
def two_results_of_which_one_is_read_by_the_other() -> Made:
    def f(x: Tensor, w: Tensor) -> tuple[Tensor, ...]:
        x.mul_(2)
        w.add_(x[0])
        return x + 1, w * 2, (x.t() @ x).relu_()

    return f, (torch.randn(4, 3), torch.randn(3)), {}


@program(written)
def intermediate_with_gaps_written() -> Made:
    """What is computed anew has no gaps; the caller gets what eager has."""

    def f(x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
        y = torch.empty_strided((3, 2), (4, 1)).fill_(1)
        y.add_(x)
        return y, y * w

    return f, (torch.randn(3, 2), torch.randn(2, requires_grad=True)), {}


@program(written)
def input_written_whole_and_then_in_part_beside_it() -> Made:
    """The part is written into what the whole became; the old value of either is read by neither."""

    def f(columns: Tensor, row: Tensor) -> None:
        columns.add_(1)
        row[8:11] = 3

    row = torch.arange(15.0)
    return f, (row.view(5, 3).t(), row), {}


@program(written)
def greatest_read_before_the_input_is_written() -> Made:
    """It is needed only after the write, and could be computed as late as that."""

    def f(x: Tensor) -> Tensor:
        greatest = x.amax(0, keepdim=True)
        x[0] = 3
        return torch.where(greatest != 0, 1, greatest)

    return f, (torch.tensor([-1, 0, -2, 0]),), {}
