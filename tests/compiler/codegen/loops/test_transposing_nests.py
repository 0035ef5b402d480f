"""How nests are written that read along one loop and store along another: by their text, and by their results."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from assay.compiler.codegen.cpp.kernel import emit_kernel
from assay.compiler.entry.dynamo import assay
from tests.lowering import planned, traced

DTYPES = (
    torch.float32,
    torch.float64,
    torch.bfloat16,
    torch.float16,
    torch.int64,
    torch.int32,
    torch.uint8,
    torch.bool,
)


def text_of(function: Callable[..., Tensor], *args: Tensor) -> str:
    (kernel,) = planned(traced(lambda *given: (function(*given),), *args)).kernels
    return emit_kernel(kernel)


def assert_as_eager(function: Callable[..., Tensor], *args: Tensor) -> None:
    torch._dynamo.reset()
    ours, theirs = torch.compile(function, backend=assay, options={"fallback": "error"})(*args), function(*args)
    torch.testing.assert_close(ours, theirs, rtol=0, atol=0, equal_nan=True)
    assert ours.stride() == theirs.stride()


def made(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    if dtype is torch.bool:
        return torch.rand(shape) < 0.5
    return (
        torch.randn(shape).mul(50).to(dtype) if dtype.is_floating_point else torch.randint(0, 100, shape, dtype=dtype)
    )


def turned_plus(x: Tensor, y: Tensor) -> Tensor:
    return x.transpose(1, 2) + y


@pytest.mark.parametrize("batch", [3, 300])
def test_few_outer_iterations_leave_a_transposing_nest_in_squares(batch: int) -> None:
    """Positions added to turned activations: the outer loop took one of the two that cross, which left no squares."""
    text = text_of(turned_plus, torch.empty(batch, 128, 192), torch.empty(192, 128))
    assert "m::transpose(" in text
    assert ("collapse(3)" in text) == (batch == 3), "the few are shared among threads together with the squares"
    assert text.count("parallel") == 1


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_few_outer_iterations_around_squares_are_as_eager(dtype: torch.dtype) -> None:
    assert_as_eager(turned_plus, made(3, 130, 97, dtype=dtype), made(97, 130, dtype=dtype))


def test_values_of_outer_iterations_are_made_inside_of_shared_squares() -> None:
    def program(x: Tensor, y: Tensor) -> Tensor:
        return (x.transpose(2, 3) * y[..., None, None].exp()).contiguous()

    x, y = made(2, 3, 100, 70), torch.randn(2, 3)
    assert "collapse(3)" in text_of(program, x, y), "the two loops around are one"
    torch._dynamo.reset()
    torch.testing.assert_close(torch.compile(program, backend=assay)(x, y), program(x, y))


def turned(x: Tensor) -> Tensor:
    return x.mul(1).transpose(1, 2).contiguous()


def test_short_loops_run_in_squares_from_one_block_on() -> None:
    """Twenty classes, channels last or not: a load across them is an element of its own vector."""
    classes = torch.empty(2, 4096, 20)
    assert "square2[20][64]" in text_of(turned, classes)
    assert "square2[64][20]" in text_of(turned, classes.transpose(1, 2).contiguous())
    assert "m::transpose(" in text_of(turned, torch.empty(2, 4096, 16))
    assert "m::transpose(" not in text_of(turned, torch.empty(2, 4096, 15)), "no block of vectors fits"
    assert "m::transpose(" not in text_of(turned, torch.empty(2, 4096, 20, dtype=torch.bfloat16))


SIZES = ((4096, 20), (515, 17), (130, 71), (64, 64), (17, 515), (20, 4096))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_squares_of_every_length_are_as_eager(dtype: torch.dtype) -> None:
    """A last block that reaches back over others, and ends that no block fits, in both directions."""

    def program(*given: Tensor) -> tuple[Tensor, ...]:
        return tuple((x == 0 if x.dtype is torch.bool else x + x).transpose(1, 2).contiguous() for x in given)

    given = [made(2, *size, dtype=dtype) for size in SIZES]
    torch._dynamo.reset()
    found = torch.compile(program, backend=assay, options={"fallback": "error"})(*given)
    for ours, theirs in zip(found, program(*given), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=0)
        assert ours.stride() == theirs.stride()
