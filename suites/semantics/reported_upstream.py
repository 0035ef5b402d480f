"""Programs of the kinds that public reports of 2025 and 2026 say torch's compilers got wrong; each names its report."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from assay.harness.case import Made
from assay.suites.semantics.program import leaf, numbers, program

reported = "reported-upstream"


@program(reported)
def list_of_tensors_updated_from_their_own_other_rows() -> Made:
    """pytorch/pytorch#198033: the update of a list reads rows that it has already written."""

    def f(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        torch._foreach_add_([x, y], [x.flip(0), y.t().contiguous().view_as(y)])
        torch._foreach_mul_([x], [x.roll(1, 1)])
        return x.sum(0), y * 2

    return f, (numbers(8, 8), numbers(4, 4)), {}


@program(reported)
def rows_put_into_an_input_that_is_then_flipped_into_itself() -> Made:
    """pytorch/pytorch#198270: the copy back into an input is fused with a read of its other rows."""

    def f(x: Tensor, y: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
        x.index_put_((rows,), x[rows] * 2)
        x.add_(x.flip(0))
        y.index_copy_(0, rows, y[rows].exp())
        y[1:] = y[:-1].clone()
        return x * 1, y.flip(1)

    return f, (numbers(6, 5), numbers(6, 5), torch.tensor([3, 0, 5])), {}


@program(reported)
def part_scattered_into_what_it_is_a_part_of() -> Made:
    """pytorch/pytorch#198010: the source of a scatter is a view of what the scatter writes."""

    def f(x: Tensor, w: Tensor) -> tuple[Tensor, ...]:
        y = x * w
        first = torch.slice_scatter(y, y[:, :-1], 1, 1)
        second = torch.select_scatter(y, y[:, 2], 1, 0)
        third = torch.diagonal_scatter(y, y[0])
        x.t().copy_(x.clone())
        return first, second, third

    return f, (numbers(5, 5), leaf(5, 5)), {}


@program(reported)
def siblings_of_an_indexed_update_are_returned() -> Made:
    """pytorch/pytorch#195292: views of a result stay alive beyond the write of the input that it came from."""

    def f(x: Tensor, rows: Tensor) -> tuple[Tensor, ...]:
        y = torch.slice_scatter(x, x[2:4] * 3, 0, 0, 2)
        z = y.index_put((rows,), y[0])
        low, high = z.split(3)
        x.copy_(z.index_put((rows + 1,), z[2]))
        return y[1:], low, high * 2

    return f, (numbers(6, 4), torch.tensor([1, 4])), {}


@program(reported)
def parts_and_the_detached_whole_are_returned() -> Made:
    """pytorch/pytorch#194479: a detached result takes the gradients of what shares its tensor."""

    def f(x: Tensor) -> tuple[Tensor, ...]:
        y = x.sin()
        return y[:4], y[4:], y.detach()

    return f, (leaf(8),), {}


@program(reported)
def value_times_one_beside_its_detached_self() -> Made:
    """pytorch/pytorch#195688: what folds to one tensor keeps one result with a gradient and one without."""

    def f(x: Tensor) -> tuple[Tensor, ...]:
        y = x.exp()
        return y.detach(), y * 1, (y + 0).detach(), y + 0.0

    return f, (leaf(5),), {}


def _momentum_steps(f: Callable[..., Any], parameter: Tensor, gradient: Tensor) -> Any:
    state = torch.zeros(()), torch.zeros_like(parameter), torch.zeros_like(parameter)
    given = parameter.detach().clone()
    return [f(given, gradient, *state).clone() for _ in range(5)], given, state


@program(reported, scenario=_momentum_steps)
def moments_divided_by_a_count_that_is_read() -> Made:
    """pytorch/pytorch#185382: a number read from a tensor scales an update in place, call after call."""

    def f(parameter: Tensor, gradient: Tensor, count: Tensor, mean: Tensor, square: Tensor) -> Tensor:
        count.add_(1)
        mean.mul_(0.9).add_(gradient, alpha=0.1)
        square.mul_(0.99).addcmul_(gradient, gradient, value=0.01)
        steps = count.item()
        scale = math.sqrt(1 - 0.99**steps)
        parameter.addcdiv_(mean, (square.sqrt() / scale).add_(1e-8), value=-0.01 / (1 - 0.9**steps))
        return parameter

    return f, (numbers(7), numbers(7)), {}


@program(reported)
def least_place_of_what_is_written_and_transposed() -> Made:
    """pytorch/pytorch#183894: the place of the least is counted in the transposed order."""

    def f(x: Tensor, w: Tensor) -> tuple[Tensor, ...]:
        y = x * w
        y.sin_()
        t = y.t()
        return t.argmin(), t.argmax(1), t.argmin(0, keepdim=True), y

    return f, (numbers(5, 7), leaf(5, 7)), {}


def _of_one_buffer(f: Callable[..., Any], weight: Tensor) -> Any:
    buffer = torch.arange(1, 40) % 7
    results = []
    for start in (0, 1, 3):
        tokens = buffer[start : start + 27].view(3, 9)
        results.append(f(tokens[:, :-1], tokens[:, 1:], weight))
    return results


@program(reported, scenario=_of_one_buffer)
def tokens_and_targets_of_one_buffer() -> Made:
    """pytorch/pytorch#191002: two shifted views of one buffer, whose address is aligned by chance alone."""

    def f(tokens: Tensor, targets: Tensor, weight: Tensor) -> tuple[Tensor, ...]:
        scores = functional.embedding(tokens, weight) @ weight.t()
        loss = functional.cross_entropy(scores.flatten(0, 1), targets.flatten())
        return loss, tokens[:, 1:], targets[1]

    return f, (leaf(7, 6),), {}


@program(reported, modes=("infer",))
def branch_by_the_mean_of_what_is_expanded() -> Made:
    """pytorch/pytorch#160730: a half is expanded, its mean decides a branch, and both sides read it again."""

    def f(x: Tensor) -> Tensor:
        wide = x.tan().expand(6, 5, 4)
        changed = wide - wide * 0.5 if wide.mean().item() > 0.5 else wide + wide * 0.5
        return changed.sin()

    return f, (torch.rand(6, 5, 1).half(),), {}


@program(reported)
def normalized_exponentials_written_as_contractions() -> Made:
    """pytorch/pytorch#159154: a buffer of one row is taken for one of all dimensions behind it."""

    def f(x: Tensor, rate: Tensor) -> Tensor:
        weights = torch.exp(-torch.einsum("i...,i->i...", x, rate))
        return torch.einsum("i,i...->i...", 1 / torch.einsum("i...->i", weights), weights)

    return f, (leaf(5, 1, 9, 8), leaf(5)), {}


class _DeconvolvedThenRanked(nn.Module):
    """A transposed convolution whose size is known at the first call, a random matrix, and the greatest place."""

    def __init__(self) -> None:
        super().__init__()
        self.spread = nn.ConvTranspose2d(3, 4, kernel_size=3, stride=2)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        y = self.spread(x)
        mixed = functional.linear(y.flatten(1), torch.randn(6, y.numel() // y.shape[0], device=y.device))
        return mixed, mixed.argmax(1)


@program(reported)
def places_of_what_a_random_matrix_mixes() -> Made:
    """pytorch/pytorch#151525: the draw comes between a convolution and the place that is read."""
    return _DeconvolvedThenRanked(), (numbers(2, 3, 5, 5),), {}


@program(reported)
def poisson_loss_with_its_stirling_term() -> Made:
    """pytorch/pytorch#170745: counts in doubles and in integers, with the term that only counts above one get."""

    def f(rate: Tensor, count: Tensor) -> tuple[Tensor, ...]:
        whole = functional.poisson_nll_loss(rate, count, full=True, reduction="none")
        return whole, functional.poisson_nll_loss(rate.exp(), count, log_input=False, full=True, eps=1e-10)

    return f, (torch.randn(4, 5, dtype=torch.float64, requires_grad=True), torch.randint(0, 32, (4, 5))), {}


@program(reported)
def expanded_results_of_several_kinds() -> Made:
    """pytorch/pytorch#177812: the tangent of an expanded result has strides in which elements overlap."""

    def f(x: Tensor) -> tuple[Tensor, ...]:
        y = x * 2
        return y.expand(3, 4), y[:, None].expand(4, 2).t(), x.sum().expand(2, 2)

    return f, (leaf(4),), {}


class _WrittenInside(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, w: Tensor) -> Tensor:
        ctx.save_for_backward(w)
        y = torch.zeros_like(x)
        y += x[: x.shape[0]] * w
        y[1:] += 1
        return y

    @staticmethod
    def backward(ctx: Any, *tangents: Tensor) -> tuple[Tensor, Tensor]:
        (w,) = ctx.saved_tensors
        return tangents[0] * w, tangents[0].cumsum(0)


@program(reported)
def custom_function_that_writes_its_result() -> Made:
    """pytorch/pytorch#180642: what a custom forward returns is written in place before."""
    return lambda x, w: _WrittenInside.apply(x, w).sin(), (leaf(6), leaf(6)), {}


class _CountsInItsBackward(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, offsets: Tensor) -> Tensor:
        ctx.save_for_backward(offsets)
        return x * 2

    @staticmethod
    def backward(ctx: Any, *tangents: Tensor) -> tuple[Tensor, None]:
        (offsets,) = ctx.saved_tensors
        offsets.add_(tangents[0])
        return tangents[0] * 3, None


@program(reported, modes=("train",))
def backward_that_writes_a_result_which_it_saved() -> Made:
    """pytorch/pytorch#172956: a result of the forward is saved, and the backward adds the tangent to it."""

    def f(x: Tensor) -> tuple[Tensor, Tensor]:
        offsets = x.detach().clone()
        return _CountsInItsBackward.apply(x, offsets).clone(), offsets

    return f, (leaf(5),), {}


class _KeepsByAttribute(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, scale: Tensor) -> Tensor:
        ctx.scale = scale
        return x * scale

    @staticmethod
    def backward(ctx: Any, *tangents: Tensor) -> tuple[Tensor, None]:
        return tangents[0] * ctx.scale, None


@program(reported, modes=("train",))
def tensor_kept_by_an_attribute_is_written_before_backward() -> Made:
    """pytorch/pytorch#171353: autograd watches what it saves, and not what a context keeps as an attribute."""

    def f(x: Tensor, scale: Tensor) -> Tensor:
        held = scale * 1
        y = _KeepsByAttribute.apply(x, held)
        held.add_(2)
        return y + held

    return f, (leaf(5), numbers(5)), {}


@program(reported, modes=("infer",))
def place_of_the_least_of_a_broadcast_sum() -> Made:
    """pytorch/pytorch#197087: with equal dynamic sizes the place is a product of a size with itself."""

    def f(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        both = x[:, None] + y
        return both.argmin(), (both + y.t()).argmax(), both.flatten().argmin(0)

    return f, (numbers(6), numbers(6, 6)), {}


@program(reported, modes=("infer",))
def least_and_greatest_of_bytes() -> Made:
    """pytorch/pytorch#191499: a tail of a vector is filled with zeros, which no byte of the input is."""

    def f(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        found = [value for each in (x, y, -y) for value in (each.amin(), each.amax(), each.argmin(), each.argmax())]
        return *found, x.min(0).values, y.view(6, 3).amax(1)

    positive = torch.tensor([5, 1, 100, 3, 7, 8, 9, 13, 100, 120, 127, 2, 6, 4, 11, 12, 90, 80])
    return f, (positive.to(torch.uint8), positive.to(torch.int8)), {}


@program(reported)
def index_reduced_by_the_greatest() -> Made:
    """pytorch/pytorch#168358: the gradient of rows that nothing is reduced into is not a number."""

    def f(x: Tensor, source: Tensor, rows: Tensor) -> tuple[Tensor, ...]:
        fresh = torch.full((4, 3), -torch.inf).index_reduce(0, rows, source, "amax", include_self=False)
        return x.index_reduce(0, rows, source, "amax"), x.index_reduce(0, rows, source, "amin"), fresh[rows]

    return f, (leaf(4, 3), leaf(5, 3), torch.tensor([0, 2, 2, 0, 1])), {}


@program(reported, modes=("infer",))
def integer_products_that_wrap() -> Made:
    """pytorch/pytorch#190764 and #183901: products of integers wrap where eager's do, and nowhere before."""

    def f(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        long = torch.arange(0, 9, dtype=torch.int64) * torch.tensor([1_500_000_000])
        return (x @ y + y @ x).sum(dim=1), ((x @ y) * x).sum(0), long, long.to(torch.int32)

    big = torch.tensor([[2**30, -(2**31)], [2**31 - 1, 77_777]], dtype=torch.int32)
    return f, (big, big.t().contiguous()), {}


@program(reported)
def flags_cut_squeezed_and_stacked_again() -> Made:
    """pytorch/pytorch#166270: a scalar of flags is stacked, viewed and multiplied by what has a gradient."""

    def f(flags: Tensor, w: Tensor) -> Tensor:
        one = torch.chunk(flags, 4, dim=0)[0].squeeze()
        return torch.stack([one, one.logical_not()]).reshape(2, 1) * w

    return f, (torch.tensor([True, False, True, True]), leaf(3)), {}


@program(reported, modes=("train",))
def copies_that_are_zeroed_have_zero_gradients() -> Made:
    """pytorch/pytorch#163572: nothing of the input is left in a result that still has a history."""

    def f(x: Tensor) -> Tensor:
        y = x.clone()
        y.zero_()
        z = y.contiguous().view(-1).clone()
        z.zero_()
        return z

    return f, (leaf(4, 3),), {}


@program(reported)
def windows_attended_rolled_and_normalized() -> Made:
    """pytorch/pytorch#181624: windows of a sequence go through attention, are rolled, and are normalized."""

    def f(x: Tensor, gain: Tensor) -> Tensor:
        windows = x.unfold(1, 4, 2).transpose(-1, -2)
        mixed = functional.scaled_dot_product_attention(windows, windows, windows.roll(1, 1))
        return functional.layer_norm(mixed.roll((1, -1), (1, 2)), (6,), gain)

    return f, (leaf(2, 10, 6), leaf(6)), {}


def _with_numbers(f: Callable[..., Any], x: Tensor) -> Any:
    return [f(x, *given) for given in ((0, 12, 1), (3, 9, 5), (-4, 4, -2), (2, 2, 0))]


@program(reported, modes=("infer",), scenario=_with_numbers)
def number_searched_for_in_a_range() -> Made:
    """pytorch/pytorch#149307: ends of a range, and what is searched for in it, change from call to call."""

    def f(x: Tensor, start: int, end: int, wanted: int) -> tuple[Tensor, Tensor]:
        values = torch.arange(start, end)
        return torch.isin(values, wanted), torch.isin(wanted, values) & (x > 0)

    return f, (numbers(3),), {}


def _under_no_grad(f: Callable[..., Any], x: Tensor) -> Any:
    with torch.no_grad():
        tracked, plain = f(x)
    (gradient,) = torch.autograd.grad(tracked.sum(), x)
    return tracked, plain, tracked is plain, plain.requires_grad, gradient


@program(reported, modes=("train",), scenario=_under_no_grad)
def one_sum_with_and_without_a_gradient() -> Made:
    """pytorch/pytorch#114338: equal computations are one value, but one of them has a history."""

    def f(x: Tensor) -> tuple[Tensor, Tensor]:
        with torch.enable_grad():
            tracked = x + 1
        return tracked, x + 1

    return f, (leaf(4),), {}


class _Gathers(nn.Module):
    seen: list[Tensor] = []  # noqa: RUF012 - the list of the class is what the report is about

    def forward(self, x: Tensor) -> Tensor:
        _Gathers.seen.append(x * 2)
        return x + len(_Gathers.seen)


def _gathered(f: Callable[..., Any], x: Tensor) -> Any:
    _Gathers.seen.clear()
    return [f(x) for _ in range(3)], list(_Gathers.seen)


@program(reported, scenario=_gathered)
def list_of_a_class_grows_with_each_call() -> Made:
    """pytorch/pytorch#169253: what a forward appends to a list of its class is there after each call."""
    return _Gathers(), (leaf(3),), {}


@program(reported, "raises", modes=("infer",))
def rows_of_another_shape_are_not_copied() -> Made:
    """pytorch/pytorch#144183: a source of another shape than the rows that it replaces is refused."""
    return lambda x, rows, new: x.index_copy(0, rows, new) * 2, (numbers(4, 3), torch.tensor([0, 2]), numbers(2, 1)), {}


@program(reported, modes=("train",))
def shape_given_by_a_tensor_that_has_no_gradient() -> Made:
    """pytorch/pytorch#151884: a tensor that only lends its shape has no gradient, which is not one of zeros."""
    return lambda x, like: x.expand_as(like) * 2 + x.view_as(like[0]), (leaf(4), leaf(3, 4)), {}


@program(reported)
def complex_sum_with_a_strided_part_seen_as_real() -> Made:
    """pytorch/pytorch#162561: a sum that lies as its strided operand is seen as pairs of real numbers."""

    def f(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        both = x + y.transpose(0, 1)
        return torch.view_as_real(both), torch.view_as_real((both * 2).contiguous()).sum(-1)

    complex_leaf = torch.randn(3, 4, dtype=torch.complex64, requires_grad=True)
    return f, (torch.randn(4, 3, dtype=torch.complex64).t(), complex_leaf.t()), {}


def _split_into_single_rows(f: Callable[..., Any], x: Tensor, w: Tensor) -> Any:
    return f(x, w), f(x * 2, w)


@program(reported, scenario=_split_into_single_rows)
def single_rows_of_a_split_are_spread() -> Made:
    """pytorch/pytorch#166270: of a split in as many parts as rows, guards alone tell that each part has one row."""

    def f(x: Tensor, w: Tensor) -> tuple[Tensor, ...]:
        first, second, third, last = torch.chunk(x, 4, dim=0)
        spread = first.expand(5, 3) * w, last + w, torch.where(w > 0, second, third), torch.lerp(w, third, last)
        table = functional.layer_norm(w, (3,), first.flatten(), last[0])
        moved = w.scatter_add(0, torch.zeros(1, 3, dtype=torch.int64), second), w.masked_fill(first > 0, 2.0)
        loss = functional.mse_loss(w, third.expand_as(w)) + functional.cosine_similarity(w, last, dim=1).sum()
        return *spread, table, *moved, loss, first.squeeze(), second.squeeze(0) @ third.t(), last.softmax(0)

    return f, (leaf(4, 3), leaf(5, 3)), {}
