"""What is no number, infinities, and zeros with a sign: through choices, extremes, comparisons and scans."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from assay.harness.case import Made
from assay.suites.semantics.program import program

special = "special-numbers"
NAN, INFINITY = float("nan"), float("inf")


def _table() -> Tensor:
    """Rows that begin with, hold and end with what is no number; one of infinities, and one of numbers alone."""
    return torch.tensor(
        [
            [NAN, 1.0, -2.0, 3.0, 0.5],
            [1.0, 2.0, NAN, -1.0, 0.0],
            [-0.0, 0.0, 4.0, -5.0, NAN],
            [-INFINITY, -INFINITY, -INFINITY, -INFINITY, -INFINITY],
            [INFINITY, -INFINITY, 0.0, -0.0, 2.0],
            [5.0, -1.0, 2.0, -0.0, 0.25],
        ]
    )


@program(special)
def greater_and_lesser_of_two() -> Made:
    def f(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        return (
            *(torch.maximum(x, y), torch.minimum(x, y), torch.fmax(x, y), torch.fmin(x, y)),
            *(x.clamp(-1, 1), x.clamp(min=y), x.clamp(max=0.5), x.relu(), torch.nn.functional.hardtanh(x)),
        )

    return f, (_table(), _table().flip(0)), {}


@program(special)
def extremes_of_rows_and_columns() -> Made:
    def f(x: Tensor) -> tuple[Tensor, ...]:
        return (
            *(x.amax(0), x.amax(1), x.amin(0), x.amin(1), x.amax(), x.amin()),
            *(*x.max(1), *x.min(0), x.argmax(1), x.argmin(0)),
        )

    return f, (_table(),), {}


@program(special)
def extremes_of_long_rows() -> Made:
    """Longer than a vector, and no multiple of one; what is no number stands in each half."""

    def f(x: Tensor) -> tuple[Tensor, ...]:
        return x.amax(1), x.amin(1), x.amax(0), x.argmax(1), x.sum(1), x.logsumexp(1)

    x = torch.randn(4, 300)
    x[0, 7] = x[1, 290] = NAN
    x[2] = -INFINITY
    return f, (x,), {}


@program(special)
def sums_products_and_scans_that_meet_it() -> Made:
    def f(x: Tensor) -> tuple[Tensor, ...]:
        return (
            *(x.sum(1), x.prod(1), x.mean(0), x.logsumexp(1), x.softmax(1), x.nansum(1)),
            *(x.cumsum(1), *x.cummax(1), *x.cummin(0), x.abs().logcumsumexp(1)),
        )

    return f, (_table(),), {}


@program(special)
def comparisons_and_signs() -> Made:
    def f(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        return x < y, x >= y, x == y, x != y, x.sign(), torch.signbit(x), -x, x.abs(), torch.copysign(y, x), x * 0.0

    return f, (_table(), _table().flip(1)), {}


@program(special)
def gradients_beside_it() -> Made:
    def f(x: Tensor) -> Tensor:
        return x.clamp(-1, 1) + x.relu() + x.amax(1, keepdim=True) + torch.where(x.isnan(), 0.0, x)

    return f, (_table().requires_grad_(),), {}


@program(special)
def bytes_that_are_read_as_truth() -> Made:
    """A byte other than 0 and 1 is true."""

    def f(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        seen = x.view(torch.bool)
        return torch.where(seen, y, -y), y * seen

    return f, (torch.tensor([0, 1, 2, 255], dtype=torch.uint8), torch.arange(1.0, 5.0)), {}


@program(special)
def halves_between_two_of_their_numbers() -> Made:
    """Sums that lie in the middle between two halves, which round to the even one."""

    def f(x: Tensor) -> tuple[Tensor, ...]:
        brain, half = (x + 1.0).to(torch.bfloat16), (x + 1.0).to(torch.float16)
        return brain * 2, half * 2, brain.view(torch.int16) + 1, half.view(torch.int16) + 1

    steps = torch.arange(-8.0, 9.0)
    return f, (torch.cat([steps / 256, steps / 2048]),), {}


@program(special, modes=("infer",))
def waves_of_large_halves() -> Made:
    """A product is rounded before its sine is taken: a half of that size lies many periods from the next."""

    def f(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        brain, half = x.bfloat16() * y.bfloat16(), x.half() * y.half()
        return (brain + y.bfloat16()).sin(), brain.cos(), (brain - 1).tan(), (half + y.half()).sin(), half.cos()

    return (
        f,
        (torch.tensor([300.0, 1234.5, -40.25, 0.3], requires_grad=True), torch.tensor([17.3, 41.1, 999.0, 3.0])),
        {},
    )


@program(special, modes=("infer",))
def last_bits_of_halves_read_in_float32() -> Made:
    """A half is rounded before it is widened, where the last bit decides: of a period, of a step, of a tie."""

    def f(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        brain = x.bfloat16() * y.bfloat16()
        wide = (brain - 1).float()
        ranked = (x.bfloat16() / 64 + 1).float()
        return wide.tan(), (brain + 0.5).double().floor(), ranked.argmax(), ranked.topk(3).indices, ranked == ranked[0]

    return f, (torch.linspace(-700, 900, 64), torch.linspace(3, 40, 64)), {}


@program(special)
def products_of_no_elements_and_of_ones() -> Made:
    def f(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        return x.prod(1), x.sum(1), y.prod(0), y.prod(), x.all(1), x.any(1)

    return f, (torch.ones(3, 0), torch.full((4, 2), 2.0)), {}


@program(special)
def constants_that_are_zeros_of_either_sign() -> Made:
    def f(x: Tensor) -> tuple[Tensor, ...]:
        plus, minus = x * 0.0, x * -0.0
        return torch.signbit(plus), torch.signbit(minus), torch.atan2(plus, x), torch.atan2(minus, x)

    return f, (torch.tensor([1.0, -1.0, 2.0]),), {}


@program(special)
def comparisons_of_unlike_dtypes() -> Made:
    """An integer beside a fraction, and one that float32 does not hold."""

    def f(n: Tensor, x: Tensor) -> tuple[Tensor, ...]:
        return n < x, n >= x, n == 1.5, n <= 2.5, n != x, n.to(torch.int8) == n

    return f, (torch.tensor([1, 2, 3, (1 << 24) + 1]), torch.tensor([1.5, 1.5, 3.0, 2.0])), {}


@program(special)
def values_rounded_to_halves_on_the_way() -> Made:
    def f(x: Tensor) -> tuple[Tensor, ...]:
        return x.to(torch.bfloat16).float() * 3, x.half().float() - x, (x * 2).bfloat16().float().sum(1)

    return f, (torch.randn(3, 5, requires_grad=True),), {}


@program(special)
def values_beyond_the_range_of_halves_on_the_way() -> Made:
    """A float64 run tells what a rounding loses, not that it overflows: only the program's own rounding does."""

    def f(x: Tensor) -> tuple[Tensor, ...]:
        half, brain = x.half().float(), x.bfloat16().float()
        return half, half.isfinite(), half * 0.5, brain, brain.isinf(), torch.where(half.isfinite(), x, -1.0)

    largest = torch.finfo(torch.float32).max
    return f, (torch.tensor([70000.0, 65519.0, -65520.0, 1.5, -1e6, largest, 1e-9]),), {}


@program(special)
def norms_of_one_element() -> Made:
    """Their squares and powers leave the range of the dtype, and they do not."""

    def f(x: Tensor) -> tuple[Tensor, ...]:
        alone = [torch.linalg.vector_norm(x, order, 0) for order in (2.0, 3.0, 0.1, -1.0, 0.0, INFINITY, 1e30)]
        return (*alone, x.norm(2, 0, keepdim=True), torch.dist(x[0, :1], x[0, 1:2]), x[:, 0].norm())

    return f, (torch.tensor([[1e30, 1e-30, -1e-40, -0.0, INFINITY, -3.0]]),), {}


@program(special)
def norms_of_no_elements() -> Made:
    """They are zeros, also where the order is not a number."""

    def f(x: Tensor) -> tuple[Tensor, ...]:
        orders = (2.0, 3.0, 0.1, 0.0, 1.0, math.nan)
        return tuple(norm for order in orders for norm in (x.norm(order), torch.linalg.vector_norm(x, order, 1)))

    return f, (torch.zeros(2, 0),), {}


@program(special)
def numbers_scaled_by_powers_of_two() -> Made:
    """The power alone is no number of the dtype, or its exponent has more than 32 bits."""

    def f(x: Tensor, n: Tensor) -> tuple[Tensor, ...]:
        return torch.ldexp(x, n), torch.ldexp(x.double(), n), torch.ldexp(x, n.float().clamp(-9, 9)), x.ldexp(n % 7)

    x = torch.tensor([1e-30, 1e30, 0.0, -0.0, INFINITY, 1.5, -2.0])
    return f, (x, torch.tensor([130, -200, 2000, 1 << 31, -(1 << 40), (1 << 32) + 3, -1])), {}


@program(special)
def spread_of_no_elements() -> Made:
    """It is no number with every correction, a negative one too."""

    def f(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        none = (x.var(0, correction=-1), x.std(0, correction=-3), x.var(0), *torch.var_mean(x, 0, correction=-2))
        return (*none, y.var(1, correction=-1), y.std(1, correction=2))

    return f, (torch.zeros(0, 3), torch.randn(3, 4)), {}


@program(special)
def the_greater_of_two_zeros() -> Made:
    """Few enough that eager compares them one by one; it gives the first of equals, but of bfloat16 the second."""

    def f(x: Tensor, y: Tensor, scalar: Tensor) -> tuple[Tensor, ...]:
        made = list[Tensor]()
        for dtype in (torch.float32, torch.float64, torch.float16, torch.bfloat16):
            a, b, s = x.to(dtype), y.to(dtype), scalar.to(dtype)
            for of_two in (torch.maximum, torch.minimum, torch.fmax, torch.fmin):
                made += [of_two(a, b), of_two(b, a), of_two(s, -s), of_two(-s, s)]
        return tuple(made)

    return f, (torch.tensor([0.0, -0.0, NAN]), torch.tensor([-0.0, 0.0, 0.0]), torch.tensor(0.0)), {}


@program(special)
def gradients_of_products() -> Made:
    """Eager chooses its formula by whether a factor is zero: here it is the one, the other, or both of one tensor."""

    def f(x: Tensor, y: Tensor, z: Tensor) -> tuple[Tensor, ...]:
        return x.prod(1), x.prod(0, keepdim=True), y.prod(1), y.prod(), z.t().prod(0), z.prod()

    some = torch.tensor([[NAN, 1.0, -2.0], [3.0, INFINITY, 0.5], [-1.0, 2.0, 4.0]])
    one = torch.tensor([[0.0, 1.5, 3.0], [2.0, -0.5, NAN]])
    return f, (some.requires_grad_(), one.requires_grad_(), torch.randn(3, 4).t().requires_grad_()), {}


@program(special)
def numbers_between_two_by_every_weight() -> Made:
    """From a half on eager counts from the end, so that at the weight 1 a zero keeps the end's sign."""

    def f(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        of_halves = torch.lerp(x.half(), y.half(), 1.0), torch.lerp(x.bfloat16(), y.bfloat16(), 0.25)
        return (*(torch.lerp(x, y, weight) for weight in (0.0, 0.25, 0.5, 1, 1.0, 3.0, -5.0)), *of_halves)

    x = torch.tensor([0.0, -0.0, 1.5, -3.0, INFINITY, NAN])
    return f, (x.clone().requires_grad_(), torch.stack([x, -x, x.flip(0)]).requires_grad_()), {}


@program(special, modes=("infer",))
def gelu_far_to_the_left_divided_by_itself() -> Made:
    """Eager's `1 + erf` is 0 there, so that it divides 0 by 0."""

    def f(x: Tensor) -> tuple[Tensor, Tensor]:
        y = torch.nn.functional.gelu(x)
        return y, y / y

    return f, (torch.tensor([-7.5, -6.0, -3.0, 1.0, 2.0]),), {}


@program(special, modes=("infer",))
def signs_of_square_roots() -> Made:
    """Of a negative number eager's root is a NaN without a sign, where that of the processor has one."""

    def f(x: Tensor) -> tuple[Tensor, ...]:
        roots = x.sqrt(), x.double().sqrt(), x**0.5, (x * 2).sqrt()
        return *map(torch.signbit, roots), torch.copysign(x, roots[0]), -roots[0]

    return f, (torch.tensor([-1.0, -INFINITY, -0.0, 0.0, 4.0, INFINITY, NAN, -NAN] * 5)[:37],), {}


@program(special, modes=("infer",))
def mean_beside_a_variance_of_an_infinity() -> Made:
    """Eager's mean is the infinity where that stands last, and no number elsewhere."""

    def f(x: Tensor) -> tuple[Tensor, ...]:
        return (*torch.var_mean(x, 1), *torch.std_mean(x.t(), 0), x.mean(1))

    return f, (torch.tensor([[INFINITY, 1.0, 2.0], [1.0, -INFINITY, 2.0], [1.0, 2.0, INFINITY]]),), {}
