"""Programs after public reports of 2023 to 2026 on forms: constants of odd sizes, short integers, writes whose layout
is asked for, modes that change between calls. Each docstring names its report."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from assay.harness.case import Made
from assay.suites.semantics.program import leaf, numbers, program

reported = "reported-upstream"
SHORT = (torch.int64, torch.int32, torch.int16, torch.int8)


def sentinel() -> Tensor:
    """One number, through which integers have a gradient to pass on."""
    return torch.tensor(1.0, requires_grad=True)


@program(reported, modes=("infer",))
def windows_of_no_elements_are_scanned() -> Made:
    """pytorch/pytorch#188224: a window of no elements, of which cumulative results are asked."""

    def f(x: Tensor) -> tuple[Any, ...]:
        w = torch.bartlett_window(0, periodic=False)
        scans = w.cumsum(0), w.cumprod(0), w.logcumsumexp(0)
        return *torch.cummin(w.clone(), -1), *torch.cummax(w * 2, 0), *scans, *torch.sort(w), x + w.sum()

    return f, (numbers(3),), {}


@program(reported)
def pools_of_windows_that_are_given() -> Made:
    """pytorch/pytorch#188217: fractional pools in front of a normalization and two activations."""

    def f(x: Tensor) -> tuple[Tensor, Tensor]:
        samples = torch.full((1, 3, 2), 0.5, dtype=x.dtype)
        pooled, places = functional.fractional_max_pool2d(
            x, 2, output_size=(3, 3), return_indices=True, _random_samples=samples
        )
        normed = functional.local_response_norm(pooled, 2, alpha=0.03)
        return functional.hardsigmoid(functional.logsigmoid(normed)), places

    return f, (torch.rand(1, 3, 8, 8, dtype=torch.float64, requires_grad=True),), {}


@program(reported)
def table_of_halves_read_by_its_operator() -> Made:
    """pytorch/pytorch#173053: a table of bfloat16 is read by the operator itself, and by the function."""

    def f(table: Tensor, places: Tensor) -> tuple[Tensor, Tensor]:
        whole = torch.ops.aten.embedding(table, places, -1, False, False)
        return whole * 2, functional.embedding(places, table, padding_idx=1)

    return f, (torch.randn(10, 4, dtype=torch.bfloat16, requires_grad=True), torch.randint(0, 3, (2, 3))), {}


class ProductInPlace(torch.autograd.Function):
    """`x @ w.t()` whose first column is doubled, each step written in place."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, w: Tensor) -> Tensor:
        ctx.save_for_backward(x, w)
        product = torch.zeros(x.shape[0], w.shape[0])
        product.addmm_(x, w.t())
        product[:, 0].mul_(2)
        return product

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor]:
        x, w = ctx.saved_tensors
        doubled = gradient.clone()
        doubled[:, 0].mul_(2)
        slope = torch.zeros_like(w)
        slope += doubled.t() @ x
        return doubled @ w, slope


@program(reported)
def custom_function_of_a_product_in_place() -> Made:
    """pytorch/pytorch#184113: forward and backward of a custom function write products in place."""
    return lambda x, w: ProductInPlace.apply(x.relu(), w).sin(), (leaf(3, 4), leaf(2, 4)), {}


@program(reported)
def writes_of_a_leaf_where_gradients_are_off() -> Made:
    """pytorch/pytorch#158561: a leaf and what is detached are written where no gradient is recorded."""

    def f(x: Tensor, w: Tensor) -> Tensor:
        with torch.no_grad():
            w.add_(1)
            limited = (x.detach() * 2).clamp_(max=1)
            w[0].mul_(2)
        return x * limited + w.sum()

    return f, (leaf(3), leaf(2, 2)), {}


@program(reported, modes=("infer",))
def diagonal_filled_with_an_item() -> Made:
    """pytorch/pytorch#163420: the number that fills a diagonal is read from a tensor."""

    def f(x: Tensor, n: Tensor) -> tuple[Tensor, Tensor]:
        wrapped = x.clone()
        wrapped.fill_diagonal_(n.sum().item(), wrap=True)
        return x.clone().fill_diagonal_(n.item()), wrapped + 1

    return f, (numbers(7, 3), torch.tensor(3)), {}


@program(reported, modes=("infer",))
def windows_are_put_back_together() -> Made:
    """pytorch/pytorch#171370: the backward operator of `unfold` is called by the program."""

    def f(x: Tensor) -> tuple[Tensor, Tensor]:
        columns = torch.ops.aten.unfold_backward(x.unfold(1, 3, 2), [4, 8], 1, 3, 2)
        return columns, torch.ops.aten.unfold_backward(x.unfold(0, 2, 1) * 2, [4, 8], 0, 2, 1)

    return f, (numbers(4, 8),), {}


@program(reported)
def digammas_of_angles() -> Made:
    """pytorch/pytorch#173478: the digamma of an angle, which may lie near a pole."""

    def f(x: Tensor) -> tuple[Tensor, Tensor]:
        angle = torch.atan(x)
        return torch.special.psi(angle), torch.special.polygamma(1, angle.abs() + 0.1)

    return f, (leaf(4, 5),), {}


@program(reported, "raises", modes=("infer",))
def logarithmic_sum_of_a_single_byte() -> Made:
    """pytorch/pytorch#197807: no kernel takes bytes, and a single number is no exception."""
    return lambda x: torch.logcumsumexp(x, 0), (torch.tensor(3, dtype=torch.uint8),), {}


def _written_after(f: Callable[..., Any], x: Tensor) -> Any:
    y, z = f(x)
    y.mul_(2)
    z[0].add_(1)
    return y, z


@program(reported, scenario=_written_after)
def results_whose_form_was_set_in_place_are_written() -> Made:
    """pytorch/pytorch#90507: what was unsqueezed or transposed in place is no view, and the caller may write it."""

    def f(x: Tensor) -> tuple[Tensor, Tensor]:
        y, z = x * 2, x + 1
        y.unsqueeze_(0)
        z.transpose_(0, 1)
        return y, z

    return f, (leaf(2, 3),), {}


@program(reported, modes=("infer",))
def halves_that_are_chosen_cast_and_summed() -> Made:
    """pytorch/pytorch#183761: chosen halves, cast up and down, and their sums."""

    def f(x: Tensor) -> tuple[Tensor, ...]:
        chosen = torch.where(x > 0, x, torch.full_like(x, 0.1))
        wide = chosen.float() + chosen.half()
        return chosen.to(torch.bfloat16).float() + x, wide.sum(), wide.half().sum()

    return f, (torch.randn(4, 9).half(),), {}


def _on_both_sides(f: Callable[..., Any], x: Tensor) -> Any:
    return [f(x, n) for n in (5, 1024, 7, 2000)]


@program(reported, modes=("infer",), scenario=_on_both_sides)
def filled_with_what_an_integer_compares_to() -> Made:
    """pytorch/pytorch#128161: a tensor is filled with a comparison of an integer that changes."""

    def f(x: Tensor, n: int) -> tuple[Tensor, ...]:
        is_long = torch.full((1,), n >= 1024, dtype=torch.bool)
        return is_long + x, torch.full((2,), n > 6), x.masked_fill(x > 0, n / 2)

    return f, (numbers(3),), {}


@program(reported, modes=("infer",))
def strides_are_set_in_place() -> Made:
    """pytorch/pytorch#185888: a tensor is given another form in place, and is asked for it."""

    def f(x: Tensor) -> tuple[Any, ...]:
        x = x * 1
        y = x.as_strided_((2, 2), (2, 1))
        return y.max(), y, x.size(0), x.stride(0), x + y

    return f, (numbers(4),), {}


def _in_and_out_of_autocast(f: Callable[..., Any], x: Tensor, w: Tensor) -> Any:
    results = []
    for is_on in (True, False, True):
        with torch.autocast("cpu", torch.bfloat16, enabled=is_on):
            results.append(f(x, w))
    return results


@program(reported, scenario=_in_and_out_of_autocast)
def sums_of_products_in_and_out_of_autocast() -> Made:
    """pytorch/pytorch#194329: sums of a product, which autocast rounds or not from call to call."""

    def f(x: Tensor, w: Tensor) -> tuple[Tensor, ...]:
        product = x @ w
        scans = product.sum(), torch.cumsum(product, 0), functional.softmax(product, -1)
        return *scans, x.sum(0), torch.linalg.vector_norm(product)

    return f, (leaf(3, 4), leaf(4, 4)), {}


def _with_every_second(f: Callable[..., Any], x: Tensor) -> Any:
    part = x.clone()[::2]
    return f(part), part


@program(reported, modes=("infer",), scenario=_with_every_second)
def strided_copy_of_a_written_part() -> Made:
    """pytorch/pytorch#133512: a copy by strides of every second element, which was written."""

    def f(x: Tensor) -> Tensor:
        x.add_(1)
        return torch.as_strided_copy(x, (3,), (2,))

    return f, (numbers(10),), {}


@program(reported, modes=("infer",), scenario=_with_every_second)
def every_second_element_is_written() -> Made:
    """pytorch/pytorch#106456: an argument with gaps is written in place."""
    return lambda x: x.mul_(2) + 1, (numbers(10),), {}


def _of_three_lengths(f: Callable[..., Any], x: Tensor, w: Tensor) -> Any:
    return [f(x[: 3 * n], x[:n, 0], w) for n in (7, 5, 2)]


@program(reported, scenario=_of_three_lengths)
def residual_blocks_in_a_wider_buffer() -> Made:
    """pytorch/pytorch#183696: rows are put in a wider buffer, whose size is a quotient of sizes, before two blocks."""

    def f(rows: Tensor, few: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
        times = rows.shape[0] // few.shape[0]
        out = torch.zeros(times * (few.shape[0] + 1), rows.shape[-1])
        out[: rows.shape[0]] = rows
        for _ in range(2):
            out = out + functional.rms_norm(out, (out.shape[-1],)) @ w
        return out.sum(), out

    return f, (leaf(21, 8), leaf(8, 8)), {}


@program(reported)
def quotient_of_short_integers_times_a_number() -> Made:
    """pytorch/pytorch#164486, #164703: constants of 16 bits, one of a squeezed size, and the kinds among them."""

    def f(x: Tensor, one: Tensor) -> tuple[Tensor, ...]:
        three = torch.full((1,), 3, dtype=torch.int16).squeeze()
        kinds = torch.unique(torch.full((2, 3), 3, dtype=torch.int16))
        quotient = torch.div(torch.full((), 1, dtype=torch.int16) + x, three)
        return quotient * one, (kinds * x).unsqueeze(1) * one, torch.unique(x, return_counts=True)[1] * one

    return f, (torch.arange(5, dtype=torch.int16), sentinel()), {}


@program(reported)
def single_flag_of_a_chunk_is_stacked() -> Made:
    """pytorch/pytorch#166270: the first of four flags, squeezed, stacked and reshaped."""

    def f(flags: Tensor, one: Tensor) -> Tensor:
        first = torch.chunk(flags, 4, 0)[0].squeeze()
        return torch.stack([first], 0).reshape([1]) * one

    return f, (torch.tensor([True, False, True, True]), sentinel()), {}


@program(reported)
def flattened_quotient_beside_a_product_of_constants() -> Made:
    """pytorch/pytorch#164428: an expanded tensor over a constant, flattened, less a product of a constant vector."""

    def f(x: Tensor, matrix: Tensor, y: Tensor) -> Tensor:
        quotient = x.expand(7, 1, 32) / torch.full((7, 1, 32), -1.25, dtype=torch.float64)
        return quotient.flatten() - (torch.full((2,), -0.75, dtype=torch.float64) @ matrix - y)

    column = torch.randn(7, 1, 1, dtype=torch.float64, requires_grad=True)
    return f, (column, torch.randn(2, 224, dtype=torch.float64), torch.randn(224, dtype=torch.float64)), {}


@program(reported)
def places_of_nothing_added_to_integers() -> Made:
    """pytorch/pytorch#163894: where no flag is set there are no places, to which a row is added."""

    def f(x: Tensor, one: Tensor) -> tuple[Tensor, ...]:
        places = torch.nonzero(torch.full((3, 4), False))
        row = torch.full((1, 2), -66, dtype=torch.int32) + torch.full((1, 2), 77)
        row = row * torch.full((1, 2), -64, dtype=torch.int32)
        return (row + places) * one, (x + places.sum()) * one, torch.div(row, x) * one

    return f, (torch.tensor([[3, 5]]), sentinel()), {}


@program(reported)
def least_of_an_attention_added_to_variances() -> Made:
    """pytorch/pytorch#163876: the least numbers that attention gives, beside variances that are reshaped."""

    def f(q: Tensor, k: Tensor, v: Tensor, x: Tensor) -> Tensor:
        least = functional.scaled_dot_product_attention(q, k, v).min(3).values
        return least + x.var(0).reshape(2, 3, 4)

    return f, (leaf(2, 3, 4, 5), leaf(2, 3, 4, 5), leaf(2, 3, 4, 5), leaf(3, 4, 6)), {}


def _of_three_numbers(f: Callable[..., Any], x: Tensor) -> Any:
    return [f(x, n) for n in (2, 22, 3, 22)]


@program(reported, scenario=_of_three_numbers)
def branch_by_an_integer_that_changes() -> Made:
    """pytorch/pytorch#127328: a number that changes is compared to a constant."""
    return lambda x, n: x * 1.0 if n == 22 else x * 0, (leaf(3),), {}


@program(reported, modes=("infer",))
def numbers_below_the_least_normal_one() -> Made:
    """pytorch/pytorch#126848: products that are subnormal are not flushed to zero."""

    def f(x: Tensor) -> tuple[Tensor, ...]:
        return x * 2.0**-124, x * 2.0**-140 + 0, (x * 2.0**-124).sum(), x / 2.0**130

    return f, (torch.tensor([0.1875, 1.0, -3.5, 7.0] * 5)[:17],), {}


@program(reported)
def rows_added_times_two_beside_their_source() -> Made:
    """pytorch/pytorch#108963: rows are added by index, times two and halved, and their source is returned."""

    def f(source: Tensor) -> tuple[Tensor, Tensor]:
        added = torch.zeros(1, dtype=torch.double).index_add(0, torch.tensor([0]), source, alpha=2.0)
        return added / 2, source

    return f, (torch.rand(1, dtype=torch.double, requires_grad=True),), {}


@program(reported, modes=("infer",))
def integers_shifted_by_their_width() -> Made:
    """pytorch/pytorch#143566: shifts by as many bits as there are, by more, and by fewer than none."""

    def f(x: Tensor, bits: Tensor) -> list[Tensor]:
        shifts = torch.bitwise_left_shift, torch.bitwise_right_shift
        return [shift(x.to(dtype), bits.to(dtype)) for shift in shifts for dtype in SHORT]

    return f, (torch.tensor([100, -100, 1, -1, 5, -7, 64]), torch.tensor([64, 64, 63, 33, -1, 8, 31])), {}


@program(reported)
def rounded_numbers_beside_an_unused_comparison() -> Made:
    """pytorch/pytorch#96728: a comparison that nobody reads leaves what it compares as it is."""

    def f(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        greatest = x.max(0).values
        rounded = torch.cat((greatest, y)).round()
        _ = y >= greatest[0]
        return rounded, greatest * y

    return f, (leaf(2, 1), leaf(1)), {}


@program(reported, modes=("infer",))
def halves_turned_by_parts() -> Made:
    """pytorch/pytorch#159239: queries and keys in bfloat16 are turned by cosines and sines."""

    def turned(x: Tensor) -> Tensor:
        middle = x.shape[-1] // 2
        return torch.cat((-x[..., middle:], x[..., :middle]), -1)

    def f(q: Tensor, k: Tensor, cosine: Tensor, sine: Tensor) -> tuple[Tensor, Tensor]:
        return q * cosine + turned(q) * sine, k * cosine + turned(k) * sine

    return f, tuple(torch.randn(2, 3, 4, 8).bfloat16() for _ in range(4)), {}


@program(reported, "raises", modes=("infer",))
def filled_with_a_parameter() -> Made:
    """pytorch/pytorch#183900: a parameter is no number to fill with."""
    fill: Any = nn.Parameter(torch.tensor(2.5))
    return lambda x: torch.full((x.shape[0], 2), fill_value=fill), (numbers(3),), {}


@program(reported)
def attention_of_numbers_cast_to_halves() -> Made:
    """pytorch/pytorch#171190: casts in front of attention round, also where its result is cast back. All operands are
    cast: eager's kernel for a GPU reads a misaligned address where float32 inputs lie off 16 bytes."""

    def f(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        low = functional.scaled_dot_product_attention(q.bfloat16(), k.bfloat16(), v.bfloat16())
        return low.float(), functional.scaled_dot_product_attention(
            q.half().float(), k.half().float(), v.half().float()
        )

    return f, (leaf(1, 2, 5, 8), leaf(1, 2, 5, 8), leaf(1, 2, 5, 8)), {}
