"""Which loops run side by side, and where costly values are made: by the text of the kernels, and by their results."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from assay.compiler.codegen.cpp.kernel import emit_kernel
from assay.compiler.entry.dynamo import assay
from tests.lowering import planned, traced

aten = torch.ops.aten


def texts(function: Callable[..., tuple[Tensor, ...]], *args: Tensor) -> list[str]:
    return [emit_kernel(kernel) for kernel in planned(traced(function, *args)).kernels]


def assert_as_eager(function: Callable[..., Tensor], *args: Tensor) -> None:
    torch._dynamo.reset()
    run = torch.compile(function, backend=assay, options={"fallback": "error"})
    ours, theirs = run(*args), function(*args)
    torch.testing.assert_close(ours, theirs, equal_nan=True)
    assert ours.stride() == theirs.stride()


def test_lane_is_where_most_that_is_read_is_contiguous() -> None:
    """The larger operand decides: the sum over the rows of `x` runs along its columns, not along those of `y`."""

    def program(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        return ((x * y[..., None]).sum(1),)

    x, y = torch.randn(4, 128, 16, 16), torch.randn(4, 128, 16)
    (text,) = texts(program, x, y)
    assert "const i64 i2 = tile + lane;" in text and "16*i1 + i2]" in text
    assert_as_eager(lambda x, y: program(x, y)[0], x, y)


def test_short_rows_that_are_stored_across_run_side_by_side() -> None:
    def program(x: Tensor) -> tuple[Tensor, ...]:
        return (aten._log_softmax(x, 1, False).contiguous() * 2,)

    x = torch.randn(2, 20, 16, 16).to(memory_format=torch.channels_last)
    x[0, 3, 2, 1], x[1, :, 4, 4] = torch.nan, -torch.inf
    text, *_ = texts(program, x)
    assert "tile + lane" in text
    assert text.count("m::log(") == 1
    before_the_log, _, behind = text.partition("m::log(")
    assert "kept" in before_the_log and "kept" in behind, "each logarithm is made once, not for each of the 20 classes"
    assert_as_eager(lambda x: program(x)[0], x)


def test_costly_values_before_a_short_loop_are_made_in_vectors() -> None:
    def program(x: Tensor, y: Tensor, z: Tensor) -> tuple[Tensor, ...]:
        return (torch.nn.functional.softplus(x + z)[..., None] * y,)

    x, y, z = torch.randn(64, 128, 16), torch.randn(16), torch.randn(128, 1)
    x[3, 4, 5] = torch.nan
    (text,) = texts(program, x, y, z)
    before, _, behind = text.partition("m::log1p(")
    assert before.count("#pragma omp simd") == 1, "the logarithm is inside of a simd loop"
    assert "row" in behind
    assert_as_eager(lambda x, y, z: program(x, y, z)[0], x, y, z)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("classes", [4, 20, 64])
def test_short_rows_across_the_lanes_are_turned_first(classes: int, dtype: torch.dtype) -> None:
    """Odd sizes, so that the last tile is not whole."""

    def program(x: Tensor) -> tuple[Tensor, ...]:
        return (x.log_softmax(1),)

    x = torch.randn(3, classes, 19, 17).to(dtype).contiguous(memory_format=torch.channels_last)
    x[0, 3, 2, 1], x[1, :, 4, 4] = torch.nan, -torch.inf
    (text,) = texts(program, x)
    assert text.count("m::transpose(") == 1 and "in0[" not in text
    assert_as_eager(lambda x: program(x)[0], x)


def test_rows_that_are_long_or_overlap_are_not_turned() -> None:
    def program(x: Tensor) -> tuple[Tensor, ...]:
        return (x.log_softmax(1),)

    overlapping = torch.randn(900).as_strided((3, 20, 16, 16), (256, 1, 16, 1))
    for x in (torch.randn(2, 65, 16, 16).contiguous(memory_format=torch.channels_last), overlapping):
        assert "m::transpose(" not in "".join(texts(program, x))
        assert_as_eager(lambda x: program(x)[0], x)


@pytest.mark.parametrize("size", [4, 5, 7, 13, 17, 21])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
def test_few_short_rows_are_turned_too(size: int, dtype: torch.dtype) -> None:
    """So few that no block of the transposition is whole: its words are read as what they were not written as."""
    x = (torch.randn(size, size) * 5).to(dtype)
    assert_as_eager(lambda x: x.t().softmax(0, dtype=torch.float64).contiguous(), x)
    assert_as_eager(lambda x: torch.log_softmax(x.t(), 0).contiguous(), x)


def test_chains_of_reductions_over_short_rows_run_side_by_side() -> None:
    """Row by row each reduction of a chain waits for the one before to be joined across a vector."""

    def greatest(x: Tensor) -> tuple[Tensor, ...]:
        return tuple(x.topk(3))

    for rows, length in ((40, 8), (40, 60), (40, 64)):
        x = torch.randn(rows, length)
        assert "m::transpose(" in texts(greatest, x)[0]
        assert_as_eager(lambda x: greatest(x)[0], x)
    for rows, length in ((8, 64), (40, 65)):
        assert "m::transpose(" not in texts(greatest, torch.randn(rows, length))[0]


def test_long_chains_over_rows_that_fill_vectors_and_are_stored_run_along_them() -> None:
    def program(x: Tensor) -> tuple[Tensor, ...]:
        return (torch.softmax(torch.nn.functional.layer_norm(x, x.shape[1:]), 1),)

    for length, is_turned in ((12, True), (32, True), (60, True), (64, False)):
        x = torch.randn(40, length)
        assert ("m::transpose(" in texts(program, x)[0]) == is_turned, length
        assert_as_eager(lambda x: program(x)[0], x)


def test_tiles_that_are_read_once_have_more_lanes() -> None:
    """Not so what is read again, as in a softmax, which should be near by then; nor what short rows are turned for."""
    x = torch.empty(130, 4096)
    once = texts(lambda x: (x.sum(0), x.amax(0)), x)
    assert all("tile += 1024" in text for text in once)
    assert "tile += 1024" in texts(lambda x: (torch.cumsum(x, 0),), x)[0]
    assert "tile += 256" in texts(lambda x: (torch.softmax(x, 0),), x)[0]
    assert "tile += 256" in texts(lambda x: ((x - x.amax(0)).exp().sum(0),), x)[0], "one pass waits for another"
    (text,) = texts(lambda x: (x.sum(0),), torch.empty(130, 1024))
    assert "tile += 256" in text, "enough tiles are left to share among threads"


@pytest.mark.parametrize("width", [4096, 4097, 5000])
def test_wide_tiles_are_as_eager(width: int) -> None:
    x = torch.randint(-9, 9, (130, width)).float()  # of which every order of adding gives the same sums
    assert_as_eager(lambda x: torch.cumsum(x, 0), x)
    assert_as_eager(lambda x: (x * 2).sum(0), x)
    assert_as_eager(lambda x: x.amax(0) - x.amin(0), x)
