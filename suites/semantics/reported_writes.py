"""Programs after public reports of 2026 in which memory is written, shared or read again; each names its report."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch._higher_order_ops.while_loop import while_loop
from torch.nn import functional

from assay.harness.case import Made
from assay.suites.semantics.program import inner, leaf, numbers, program

reported = "reported-upstream"


@program(reported)
def scattered_parts_outlive_what_their_input_becomes() -> Made:
    """pytorch/pytorch#198094: an input is written after a scatter has copied it, and the copy is returned."""

    def f(x: Tensor, y: Tensor, source: Tensor) -> tuple[Tensor, ...]:
        slices = torch.slice_scatter(x, source[1:3], dim=0, start=1, end=3)
        column = torch.select_scatter(y, source[0, :4], dim=1, index=2)
        same = torch.diagonal_scatter(y, y.diagonal())
        x.zero_()
        y.fill_(3.0)
        return slices, column, same, slices.sum(0) + x[0]

    return f, (numbers(4, 6), numbers(4, 4), leaf(4, 6)), {}


@torch.library.custom_op("assay_reported::raised", mutates_args=())
def raised(x: Tensor) -> Tensor:
    return x + 1


@raised.register_fake
def _raised_fake(x: Tensor) -> Tensor:
    return torch.empty_like(x)


@program(reported, modes=("infer",))
def diagonal_of_what_an_operator_made_of_bits() -> Made:
    """pytorch/pytorch#197408: a result of an operator of the user's is seen in another dtype, then scattered into."""

    def f(x: Tensor, diagonal: Tensor) -> tuple[Tensor, ...]:
        bits = torch.ops.assay_reported.raised(x).view(torch.int32)
        written = torch.diagonal_scatter(bits, diagonal)
        x.add_(1)
        return written, bits, written.view(torch.float32)

    return f, (numbers(4, 4), torch.arange(4, dtype=torch.int32)), {}


@program(reported)
def doubled_through_a_dropout_that_is_off() -> Made:
    """pytorch/pytorch#195422: a dropout that is off gives its argument back, and that is written."""

    def f(x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
        inside = x * w
        kept = functional.dropout(inside, 0.5, training=False)
        kept += kept
        return inside.sum(0), kept

    return f, (numbers(3, 4), leaf(3, 4)), {}


@program(reported)
def rows_read_from_the_single_row_they_were_added_to() -> Made:
    """pytorch/pytorch#191571: all rows are added to one row, and each reads it."""

    def f(x: Tensor, rows: Tensor) -> tuple[Tensor, ...]:
        total = torch.zeros(1, x.shape[1]).scatter_add_(0, rows.unsqueeze(-1).expand(-1, x.shape[1]), x)
        counts = torch.zeros(1).index_add(0, rows, torch.ones(len(rows)))
        return total.index_select(0, rows), x - total[rows] / counts[rows, None], total.gather(0, rows[:1, None])

    return f, (leaf(6, 4), torch.zeros(6, dtype=torch.int64)), {}


@program(reported)
def gradient_of_what_scattered_parts_leave() -> Made:
    """pytorch/pytorch#182012, #180164: the sum of a scatter has gradients of one where nothing was written."""

    def f(x: Tensor, row: Tensor, part: Tensor) -> tuple[Tensor, ...]:
        diagonal = torch.diagonal_scatter(x, row, 0).sum()
        beside = torch.diagonal_scatter(x, row[:-1], 1).sum(1)
        slices = torch.slice_scatter(x, part, dim=1, start=1, end=3).sum(dim=1)
        strided = torch.slice_scatter(x, part, dim=1, start=0, end=4, step=2).sum()
        return diagonal, beside, slices, strided, torch.select_scatter(x, row, 0, -1).sum(0)

    return f, (leaf(4, 4), leaf(4), leaf(4, 2)), {}


class _Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, a: Tensor, b: Tensor) -> Tensor:
        ctx.save_for_backward(a, b)
        return a * b + a + b

    @staticmethod
    def backward(ctx: Any, tangent: Tensor) -> tuple[Tensor, Tensor]:
        a, b = ctx.saved_tensors
        return tangent * (b + 1), tangent * (a + 1)


@program(reported)
def custom_product_of_views_of_one_tensor() -> Made:
    """pytorch/pytorch#183604: two arguments of a custom function are parts of one tensor."""
    return lambda x: _Product.apply(x[1:], x[:-1]) + _Product.apply(x.t(), x.t() * 2).sum(), (leaf(4, 4),), {}


@program(reported, modes=("infer",))
def loop_whose_body_scatters_a_tensor_from_outside() -> Made:
    """pytorch/pytorch#191582: the body of a loop closes over the value that the loop begins with."""

    def f(x: Tensor, places: Tensor) -> Tensor:
        def body(i: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
            return i + 1, torch.scatter(value.clone(), 0, places, x)

        return while_loop(lambda i, value: i < 2, body, (torch.tensor(0), x * 2))[1]

    return f, (numbers(4, 4), torch.tensor([[0], [3], [2], [1]])), {}


@torch.library.custom_op("assay_reported::add_into", mutates_args=("total",))
def add_into(total: Tensor, x: Tensor) -> None:
    total.add_(x)


@program(reported, modes=("infer",))
def region_that_calls_an_operator_that_writes() -> Made:
    """pytorch/pytorch#186807: inside a region that is compiled once an operator of the user's writes its argument."""

    @torch.compiler.nested_compile_region
    def region(total: Tensor, x: Tensor) -> Tensor:
        torch.ops.assay_reported.add_into(total, x)
        return total + 1.0

    def f(total: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        first = region(total, x)
        return first, region(total, first)

    return f, (numbers(3, 4), numbers(3, 4)), {}


@program(reported)
def views_of_views_with_sizes_that_change() -> Made:
    """pytorch/pytorch#185630: views of an input are made anew from symbolic sizes after the call."""

    def f(x: Tensor, w: Tensor) -> tuple[Tensor, ...]:
        n, m = x.shape
        folded = x.view(m, n).t()[: n // 2 + 1]
        w.mul_(2)
        return folded, folded.unflatten(1, (m // 2, 2)).permute(1, 0, 2), w.view(-1)[m:].unfold(0, m, n)

    return f, (leaf(3, 4), inner(3, 4)), {}


@program(reported)
def inner_gradient_of_columns_that_are_added_to() -> Made:
    """pytorch/pytorch#136662: inside a gradient of torch.func two columns are added to one."""

    def cost(x: Tensor) -> Tensor:
        y = torch.zeros_like(x)
        y[:, 0] += x[:, 2].abs()
        y[:, 0] += x[:, 2].abs() * x[:, 1]
        y[1:, 1] *= 2
        return y.sum() + (y[:, 0] ** 2).sum()

    return lambda x: (torch.func.grad(cost)(x), cost(x)), (numbers(2, 3),), {}


def _shifted_over_itself(f: Callable[..., Any], x: Tensor) -> Any:
    apart, together = torch.ones(4), torch.arange(8.0)
    first = f(apart, torch.ones(4), x)
    second = f(together[:4], together[2:6], x)
    return first, second, together, f(together[4:], together[:4], x), apart


@program(reported, scenario=_shifted_over_itself)
def inputs_apart_then_overlapping_then_beside_each_other() -> Made:
    """pytorch/pytorch#139789: the first call's inputs share no memory, the second's do, the third's lie apart in it."""

    def f(a: Tensor, b: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        a.mul_(2)
        total = a + b * x
        b.add_(1)
        return total, a - b

    return f, (numbers(4),), {}


@program(reported)
def pairs_seen_as_complex_numbers_and_back() -> Made:
    """pytorch/pytorch#122457: a complex view's memory is used again while its real view is read."""

    def f(x: Tensor) -> tuple[Tensor, ...]:
        pairs = torch.view_as_complex(x + 1)
        again = torch.view_as_real(pairs)
        return again + 1, torch.view_as_real(pairs + 1), torch.view_as_real(pairs * pairs.conj()).sum(0)

    return f, (leaf(4, 2),), {}


@program(reported)
def rows_by_negative_places_added_to_themselves() -> Made:
    """pytorch/pytorch#138908: rows are named from the end and from the beginning, and doubled where they are."""

    def f(places: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        moved = places + 10
        x[moved] += x[moved]
        x[-1 - moved] *= 3
        return x.sum(0), x[moved - 4]

    return f, (torch.tensor([[-10, -8]]), inner(4, 5)), {}


@program(reported, modes=("train",))
def gradients_within_a_call_that_have_gradients() -> Made:
    """pytorch/pytorch#181581: a gradient is taken within a call and recorded; the results are differentiated again."""

    def f(x: Tensor, w: Tensor) -> tuple[Tensor, ...]:
        energy = (torch.tanh(x @ w) ** 2).sum()
        force, metric = torch.autograd.grad(energy, (x, w), create_graph=True)
        return energy, force * 2, metric.sum(0)

    return f, (leaf(3, 4), leaf(4, 2)), {}
