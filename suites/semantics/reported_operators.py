"""Programs after public reports of 2025 and 2026 on single operators; each docstring names its report.

Their subjects are dtypes, special numbers, sizes of zero and one, and what eager refuses.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from assay.harness.case import Made
from assay.suites.semantics.program import integers, leaf, numbers, program

reported = "reported-upstream"


@program(reported, modes=("infer",))
def draws_of_means_and_deviations_of_two_dtypes() -> Made:
    """pytorch/pytorch#194547: a draw has the dtype of its means, whatever that of its deviations is."""

    def f(means: Tensor, deviations: Tensor) -> tuple[Tensor, ...]:
        drawn = torch.distributions.Normal(means, deviations).sample()
        return drawn, torch.normal(means, deviations), torch.normal(means.float(), deviations.double())

    return f, (torch.zeros(8, dtype=torch.float16), torch.ones(8)), {}


@program(reported, modes=("infer",))
def powers_of_two_times_numbers_of_other_dtypes() -> Made:
    """pytorch/pytorch#197091: ldexp promotes both of its arguments."""

    def f(flags: Tensor, whole: Tensor, half: Tensor, single: Tensor) -> tuple[Tensor, ...]:
        mixed = torch.ldexp(half, single), torch.ldexp(single, half), torch.ldexp(half.bfloat16(), half)
        return torch.ldexp(flags, half), torch.ldexp(whole, half.bfloat16()), torch.ldexp(whole, whole), *mixed

    return f, (torch.tensor([True, False, True]), integers(3), torch.randn(3).half(), numbers(3)), {}


@program(reported, modes=("infer",))
def sums_along_constants_in_another_dtype() -> Made:
    """pytorch/pytorch#189518: a running sum of equal numbers has the dtype that was asked for."""

    def f(x: Tensor) -> tuple[Tensor, ...]:
        flags = torch.ones((2, 4, 4), dtype=torch.bool)
        bytes_ = torch.full((3, 200), 2, dtype=torch.uint8).cumsum(1, dtype=torch.uint8)
        return flags.cumsum(1, dtype=torch.bfloat16), flags.cumsum(2), bytes_, torch.full((5,), 0.1).cumsum(0) * x

    return f, (numbers(5),), {}


@program(reported, modes=("infer",))
def sums_along_a_single_number() -> Made:
    """pytorch/pytorch#193265: a tensor of no dimensions has a running sum along its dimension 0."""

    def f(x: Tensor) -> tuple[Tensor, ...]:
        constants = torch.tensor(5.0).cumsum(0), torch.tensor(True).cumsum(-1), torch.zeros(()).cumprod(0)
        return *constants, x.cumsum(0), x.cumprod(-1, dtype=torch.float64), x.logcumsumexp(0), x.cummax(0).indices

    return f, (torch.tensor(2.5),), {}


@program(reported)
def rows_taken_of_a_convolution_with_zeros() -> Made:
    """pytorch/pytorch#193581: places that are constant are taken of a convolution with a constant."""

    def f(x: Tensor) -> tuple[Tensor, Tensor]:
        convolved = functional.conv2d(x, torch.zeros(2, 2, 1, 6), padding=2)
        flat = functional.conv2d(x, torch.ones(2, 2, 1, 6), padding=2)
        return convolved.index_select(2, torch.tensor([3, 4, 6, 8])), flat.index_select(2, torch.tensor([3, 0, 3]))

    return f, (leaf(1, 2, 5, 6),), {}


@program(reported)
def special_functions_of_a_slice_are_stacked() -> Made:
    """pytorch/pytorch#185702: logarithms of gamma, error functions and x log y of one slice are stacked."""

    def f(x: Tensor, y: Tensor, a: Tensor) -> Tensor:
        column = x[..., 16]
        positive, rates = functional.softplus(column) + 1e-4, functional.softplus(y) + 1e-4
        gamma = torch.special.gammaln(positive + a.view(1, -1).abs())
        return torch.stack([gamma, torch.special.erf(column * a), torch.special.xlogy(positive, rates)], dim=-1)

    return f, (leaf(4, 8, 17), leaf(4, 8), leaf(8)), {}


@program(reported, "raises", modes=("infer",))
def part_beyond_a_dimension_of_one() -> Made:
    """pytorch/pytorch#183769: the second element of a dimension of size one is asked for."""

    def f(x: Tensor) -> Tensor:
        base = x.unsqueeze(1)
        return torch.cat([torch.select(base, 1, 0), torch.select(base, 1, 1)], dim=-1)

    return f, (numbers(3, 4),), {}


@program(reported, "raises", modes=("infer",))
def image_without_rows_is_resized() -> Made:
    """pytorch/pytorch#197095: an image of no rows has nothing to resize from."""
    return lambda x: functional.interpolate(x + 1, size=(2, 2), mode="nearest"), (numbers(1, 2, 0, 3),), {}


@program(reported)
def complex_sums_of_nothing_and_of_single_numbers() -> Made:
    """pytorch/pytorch#190274, #160495: complex sums of no rows, and of a number of no dimensions."""

    def f(x: Tensor, y: Tensor, z: Tensor) -> tuple[Tensor, ...]:
        return x + y, x * y.conj(), z[0] + z, (z[0] + z[1]).abs(), torch.view_as_real(x + x)

    nothing = [torch.randn(3, 0, dtype=torch.complex64) for _ in range(2)]
    return f, (*nothing, torch.randn(4, dtype=torch.complex64, requires_grad=True)), {}


@program(reported, modes=("infer",))
def chunks_of_nothing() -> Made:
    """pytorch/pytorch#147277: a tensor of no elements has as many chunks as are asked for."""

    def f(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        return *torch.unsafe_chunk(x, 4), *torch.chunk(y, 3, dim=1), *torch.tensor_split(y, 3, dim=0)

    return f, (numbers(0), numbers(2, 0)), {}


@program(reported)
def channels_divided_by_their_sum_between_convolutions() -> Made:
    """pytorch/pytorch#178080: a weight of many channels scales channels that their sum divides."""

    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Conv2d(4, 13, 1, bias=False), nn.Conv2d(13, 1, 1, bias=False)
            self.scale = nn.Parameter(torch.ones(1, 13, 1, 1))

        def forward(self, x: Tensor) -> Tensor:
            channels = self.first(x).exp()
            return self.second(channels / channels.sum(1, keepdim=True) * self.scale)

    return Scaled(), (leaf(3, 4, 5, 5),), {}


@program(reported, modes=("infer",))
def signs_of_zero_as_numbers_and_tensors() -> Made:
    """pytorch/pytorch#174172: a number gives its sign, be it a negative zero."""

    def f(x: Tensor) -> tuple[Tensor, ...]:
        roots = torch.sqrt(x), torch.sqrt(x * 0.0).signbit(), torch.rsqrt(x * 0.0)
        return torch.copysign(x, -0.0), torch.copysign(x, 0.0), torch.copysign(x, -x * 0.0), *roots

    return f, (torch.tensor([1.5, -2.0, 0.0, -0.0, 3.0]),), {}


@program(reported)
def losses_with_weights_of_another_dtype() -> Made:
    """pytorch/pytorch#171282: a loss in bfloat16 has weights in float32."""

    def f(x: Tensor, y: Tensor, weight: Tensor) -> tuple[Tensor, ...]:
        weighted = functional.binary_cross_entropy_with_logits(x, y, weight, reduction="sum")
        positive = functional.binary_cross_entropy_with_logits(x, y, pos_weight=weight.abs(), reduction="none")
        return weighted, functional.binary_cross_entropy_with_logits(x, y, weight), positive

    low = torch.randn(4, 6, dtype=torch.bfloat16, requires_grad=True)
    return f, (low, torch.rand(4, 6, dtype=torch.bfloat16), numbers(6)), {}


@program(reported, "raises", modes=("infer",))
def batches_of_two_dtypes_are_not_multiplied() -> Made:
    """pytorch/pytorch#177630: batches of halves and of float32 numbers have no product."""
    return lambda x, y: torch.matmul(x, y) * 2, (torch.randn(2, 3, 4).half(), numbers(2, 4, 5)), {}


@program(reported)
def norms_over_no_named_dimension() -> Made:
    """pytorch/pytorch#153568: an empty list of dimensions is all of them."""

    def f(x: Tensor) -> tuple[Tensor, ...]:
        norms = [torch.linalg.vector_norm(x, p, dim=[], keepdim=keep) for p in (1, 2, 3.5) for keep in (False, True)]
        return *norms, torch.sum(x, []), torch.var(x, []), torch.logsumexp(x, [0, 1]), torch.amax(x, [])

    return f, (leaf(3, 4),), {}


@program(reported)
def variances_that_divide_by_less_than_nothing() -> Made:
    """pytorch/pytorch#113167: a correction may leave no degree of freedom, or fewer than none."""

    def f(x: Tensor, row: Tensor) -> tuple[Any, ...]:
        one = torch.var_mean(x[0, 0], dim=-1, correction=4.9, keepdim=True)
        return *one, torch.var(x, 1, correction=4), torch.std(x, 1, correction=0.5), torch.var(row, 0, correction=3)

    return f, (leaf(3, 4), leaf(2)), {}


@program(reported, "raises", modes=("infer",))
def extremes_into_tensors_of_another_dtype() -> Made:
    """pytorch/pytorch#137213: results are asked into tensors of a dtype that they do not have."""

    def f(x: Tensor, least: Tensor, most: Tensor) -> Tensor:
        torch.aminmax(x, dim=-1, out=(least, most))
        return least + most

    return f, (numbers(3, 4), torch.empty(3, dtype=torch.float64), torch.empty(3, dtype=torch.float64)), {}


@program(reported, modes=("infer",))
def places_of_nothing_are_unpooled() -> Made:
    """pytorch/pytorch#144836: unpooling makes a result of no elements, so no place is within it."""
    unpool = nn.MaxUnpool1d(kernel_size=2, stride=2, padding=1)
    return lambda x: (unpool(x, x.long()), x * 2), (numbers(1, 1, 1),), {}


@program(reported)
def logits_scaled_by_a_bounded_exponential() -> Made:
    """pytorch/pytorch#179135: attention of cosines scaled by an exponential that is bounded, with shifted masks."""

    def f(q: Tensor, k: Tensor, scale: Tensor, mask: Tensor) -> Tensor:
        cosines = functional.normalize(q, dim=-1) @ functional.normalize(k, dim=-1).transpose(-2, -1)
        scaled = cosines * torch.clamp(scale, max=4.6052).exp()
        windows = mask.unsqueeze(1) - mask.unsqueeze(2)
        shifted = windows.masked_fill(windows != 0, -100.0).masked_fill(windows == 0, 0.0)
        return (scaled.view(2, 2, 2, 4, 4) + shifted.unsqueeze(1).unsqueeze(0)).view(-1, 2, 4, 4).softmax(-1)

    return f, (leaf(4, 2, 4, 3), leaf(4, 2, 4, 3), leaf(2, 1, 1), torch.arange(8).view(2, 4) // 3 * 1.0), {}
