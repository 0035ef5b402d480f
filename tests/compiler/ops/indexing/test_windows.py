"""Pooling, padding by reflection, upsampling and patches against eager, and how loops are cut where clamps end."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional

from assay.compiler.codegen.cpp.kernel import emit_kernel
from assay.compiler.codegen.loops.nest import segments
from assay.compiler.entry.dynamo import assay
from assay.compiler.ir.loops.index import Int, Symbol, evaluate, maximum, minimum
from assay.compiler.ir.loops.kernel import Load, Loop, Store
from tests.lowering import assert_same, check, planned, traced

aten = torch.ops.aten
Program = Callable[[torch.Tensor], tuple[torch.Tensor, ...]]


def image(*shape: int) -> torch.Tensor:
    """Random, with a NaN, equal maxima and an area of -inf."""
    x = torch.randn(*shape, generator=torch.Generator().manual_seed(0))
    x[0, 0, 3, 3] = float("nan")
    x[0, 1, :4, :4] = -float("inf")
    x[-1, 2] = 1.0
    return x


PROGRAMS: dict[str, Program] = {
    "max": lambda x: aten.max_pool2d_with_indices(x, [3, 3], [2, 2], [1, 1]),
    "max of blocks": lambda x: aten.max_pool2d_with_indices(x, [2, 2]),
    "max dilated": lambda x: aten.max_pool2d_with_indices(x, [3, 2], [2, 1], [1, 1], [2, 3]),
    "max ceil": lambda x: aten.max_pool2d_with_indices(x, [3, 3], [2, 2], [0, 1], [1, 1], True),
    "max of three": lambda x: aten.max_pool3d_with_indices(x, [2, 3, 2], [1, 2, 1], [1, 1, 0]),
    "average": lambda x: (functional.avg_pool2d(x, 3, 2, 1), functional.avg_pool2d(x, (3, 2), (2, 1))),
    "average of what is inside": lambda x: (functional.avg_pool2d(x, (3, 2), (2, 1), 1, False, False),),
    "average ceil": lambda x: (functional.avg_pool2d(x, 3, 2, 1, True), functional.avg_pool2d(x, 3, 2, 1, True, False)),
    "average divided": lambda x: (functional.avg_pool2d(x, 2, 3, divisor_override=3),),
    "average of others": lambda x: (functional.avg_pool1d(x[0], 3, 2, 1), functional.avg_pool3d(x, 2, 1, 1)),
    "average of a number": lambda x: (functional.adaptive_avg_pool2d(x[..., :10], (3, 5)),),
    "reflection": lambda x: (functional.pad(x, (2, 1, 3, 2), "reflect"), functional.pad(x[0], (4, 1), "reflect")),
    "replication": lambda x: (functional.pad(x, (2, 1, 3, 2), "replicate"), functional.pad(x[0], (9, 1), "replicate")),
    "cropped": lambda x: (functional.pad(x, (2, -1, 0, 2), "reflect"), functional.pad(x, (-1, -1, 0, -2), "replicate")),
    "nearest": lambda x: (functional.interpolate(x, scale_factor=2), functional.interpolate(x, size=(3, 11))),
    "nearest exact": lambda x: (functional.interpolate(x, scale_factor=3, mode="nearest-exact"),),
    "nearest by fractions": lambda x: (functional.interpolate(x, scale_factor=1.7), functional.interpolate(x, size=7)),
    "patches": lambda x: (functional.unfold(x, (3, 2), padding=1, stride=2), functional.unfold(x, 2, dilation=(2, 1))),
    "shuffles": lambda x: (
        functional.pixel_shuffle(x[:, [0, 1, 2, 0]], 2),
        functional.pixel_unshuffle(x[:, :, 1:, :10], 2),
    ),
    "channels": lambda x: (aten.channel_shuffle(x[:, [0, 1, 2, 0]], 2),),
    "diagonals": lambda x: (
        x.diagonal_scatter(x.diagonal(2, -2, -1) * 2, 2, -2, -1),
        x.diagonal_scatter(x.diagonal(-1, -2, -1).exp(), -1, -2, -1),
    ),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_window_as_eager(name: str) -> None:
    assert not check(PROGRAMS[name], image(2, 3, 9, 11)).counts.fallbacks


@pytest.mark.parametrize("name", ["max ceil", "average", "replication", "nearest"])
def test_window_of_channels_last_as_eager(name: str) -> None:
    schedule = check(PROGRAMS[name], image(2, 3, 9, 11).contiguous(memory_format=torch.channels_last))
    assert set(schedule.counts.fallbacks) <= {"aten.avg_pool2d"}


def test_channel_shuffle_keeps_channels_last_as_eager() -> None:
    check(
        lambda x: (aten.channel_shuffle(x, 2),), torch.randn(2, 4, 3, 3).contiguous(memory_format=torch.channels_last)
    )


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
def test_window_dtypes(dtype: torch.dtype) -> None:
    rtol = {torch.float64: 1e-12, torch.bfloat16: 8e-3, torch.float16: 1e-3}[dtype]
    for name in ("max", "average", "reflection", "nearest", "patches"):
        check(PROGRAMS[name], image(2, 3, 9, 11).to(dtype), rtol=rtol, atol=rtol)


def test_window_with_dynamic_sizes() -> None:
    for name in ("max", "average", "reflection", "replication"):
        check(PROGRAMS[name], image(2, 3, 9, 11), mode="symbolic")


AVERAGES: list[tuple[Any, ...]] = [
    ([3, 3], [2, 2], [1, 1], False, True, None),
    ([3, 2], [2, 1], [1, 1], False, False, None),
    ([3, 3], [2, 2], [1, 1], True, False, None),
    ([2, 2], [3, 3], [0, 0], False, True, 3),
]


@pytest.mark.parametrize("arguments", AVERAGES)
def test_gradient_of_average_as_eager(arguments: tuple[Any, ...]) -> None:
    x = torch.randn(2, 3, 9, 11)
    gradient = torch.randn_like(aten.avg_pool2d(x, *arguments))
    schedule = check(lambda g, x: (aten.avg_pool2d_backward(g, x, *arguments),), gradient, x)
    assert not schedule.counts.fallbacks


def test_gradients_of_blocks_as_eager() -> None:
    gradient, x = torch.randn(2, 3, 3, 2), torch.randn(2, 3, 9, 4)
    check(lambda g, x: (aten._adaptive_avg_pool2d_backward(g, x),), gradient, x)
    large = torch.randn(2, 3, 18, 12)
    check(lambda g: (aten.upsample_nearest2d_backward(g, [18, 12], [2, 3, 9, 4]),), large)
    check(lambda g: (aten._upsample_nearest_exact2d_backward(g, [18, 12], [2, 3, 6, 6]),), large)


def test_compiled_windows_as_eager() -> None:
    """All programs in one compile, on rows long enough to be cut where their clamps end."""

    def every(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tuple(result for program in PROGRAMS.values() for result in program(x))

    x = image(2, 3, 9, 11).repeat(1, 1, 5, 5)[:, :, :41, :45]
    for number, (ours, theirs) in enumerate(zip(torch.compile(every, backend=assay)(x), every(x), strict=True)):
        assert_same(ours, theirs, f"result {number}")


def test_compiled_windows_of_dynamic_sizes_as_eager() -> None:
    """One compile for rows that are all ends, and for rows with a middle between them."""

    def every(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tuple(PROGRAMS[name](x)[0] for name in ("max", "average", "reflection", "replication", "cropped"))

    compiled = torch.compile(every, backend=assay, dynamic=True)
    for height, width in ((9, 11), (5, 5), (30, 41), (6, 70), (5, 6)):
        x = image(2, 3, 30, 70)[:, :, :height, :width]
        for number, (ours, theirs) in enumerate(zip(compiled(x), every(x), strict=True)):
            assert_same(ours, theirs, f"result {number} of {height}x{width}")


# ---- loops cut where clamps end --------------------------------------------------------------------------------------


@pytest.mark.parametrize("step", [1, 2, -1, -3])
def test_indices_are_linear_in_each_segment(step: int) -> None:
    i, size, count = Symbol("i"), 41, 60
    for index in (
        maximum(i * step + 7, Int(0)),
        minimum(i * step + 30, Int(size)),
        maximum(minimum(i * step + 9, Int(size)), Int(3)),
        minimum(maximum(i - 5, i * -1 + 5), i * -1 + 71),
    ):
        store = Store("y", i, Load("x", index, torch.float32), "write")
        found = segments(Loop("i", Int(count)), [store])
        assert found[0][0] == 0 and found[-1][1] == count
        assert all(before[1] == after[0] for before, after in itertools.pairwise(found))
        for first, last in found:
            values = [evaluate(index, {"i": at}) for at in range(first, last)]
            assert len({b - a for a, b in itertools.pairwise(values)}) <= 1, (index, found)


def test_the_long_segment_reads_in_order() -> None:
    kernel = planned(traced(lambda x: (functional.pad(x, (1, 1)),), torch.randn(64, 128))).kernels[0]
    source = emit_kernel(kernel)
    inner = source[source.index("i1 < 128") :].split("}")[0]
    assert "least" not in inner and "?" not in inner, source


@pytest.mark.parametrize("size", [(3, 4), (9, 11), (1, 1), (2, 5), (11, 3), (5, 13)])
def test_windows_of_a_given_number_as_eager(size: tuple[int, int]) -> None:
    x = image(2, 3, 9, 11)
    even = check(
        lambda x: (aten._adaptive_avg_pool2d(x, size), aten._adaptive_avg_pool2d(x[0], size)), x.nan_to_num(0, 0, 0)
    )
    assert not even.counts.fallbacks
    largest = check(lambda x: (*aten.adaptive_max_pool2d(x, size), *aten.adaptive_max_pool2d(x[0] * 2, size)), x)
    assert bool(largest.counts.fallbacks) is (size == (1, 1))  # a large window


def test_windows_of_a_given_number_in_three_dimensions_as_eager() -> None:
    x = torch.randn(2, 3, 5, 4, 6, generator=torch.Generator().manual_seed(0))
    schedule = check(lambda x: (aten._adaptive_avg_pool3d(x, (2, 3, 4)), *aten.adaptive_max_pool3d(x, (2, 3, 4))), x)
    assert not schedule.counts.fallbacks


@pytest.mark.parametrize(("size", "is_even"), [((3, 11), True), ((9, 1), True), ((4, 5), False)])
def test_gradient_of_an_average_of_a_number_as_eager(size: tuple[int, int], is_even: bool) -> None:
    gradient = torch.randn(2, 3, *size, generator=torch.Generator().manual_seed(1))
    schedule = check(lambda g, x: (aten._adaptive_avg_pool2d_backward(g, x),), gradient, image(2, 3, 9, 11))
    assert not schedule.counts.fallbacks if is_even else schedule.counts.fallbacks


GRADIENTS: dict[str, Program] = {
    "max": lambda x: (functional.max_pool2d(x, 3, 2, 1),),
    "max of blocks": lambda x: (functional.max_pool2d(x, 2),),
    "max dilated": lambda x: (functional.max_pool2d(x, (3, 2), (2, 1), 1, (2, 3)),),
    "max ceil": lambda x: (functional.max_pool2d(x, 3, 2, (0, 1), 1, True),),
    "max of three": lambda x: (functional.max_pool3d(x, (2, 3, 2), (1, 2, 1), (1, 1, 0)),),
    "max of a number": lambda x: (functional.adaptive_max_pool2d(x, (3, 4)),),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", GRADIENTS)
def test_gradient_of_a_maximum_is_eagers(name: str, dtype: torch.dtype) -> None:
    """Bit for bit: gradients that meet in one element are added in the order in which eager adds them."""
    x = image(2, 3, 8, 9).to(dtype).requires_grad_()
    run = torch.compile(GRADIENTS[name], backend="assay", options={"fallback": "error"})
    gradients = []
    for function in (GRADIENTS[name], run):
        (y,) = function(x)
        cotangent = torch.randn(y.shape, generator=torch.Generator().manual_seed(1)).to(dtype)
        gradients += torch.autograd.grad(y, x, cotangent)
    assert_same(gradients[1], gradients[0], name, rtol=0.0, atol=0.0)


def test_gradient_of_a_maximum_is_generated() -> None:
    def backward(x: torch.Tensor, gradient: torch.Tensor) -> tuple[torch.Tensor, ...]:
        _, indices = aten.max_pool2d_with_indices(x, [3, 3], [2, 2], [1, 1])
        return (aten.max_pool2d_with_indices_backward(gradient, x, [3, 3], [2, 2], [1, 1], [1, 1], False, indices),)

    schedule = planned(traced(backward, image(2, 3, 8, 9), torch.randn(2, 3, 4, 5)))
    assert schedule.counts.fallbacks == {} and schedule.counts.generated == schedule.counts.compute == 2
