"""Sums along rows and over rows of one matrix in one kernel: which they are, and that they give what eager gives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from assay.compiler.codegen.cpp.kernel import emit_kernel
from assay.compiler.entry.dynamo import assay
from assay.compiler.ir.loops.kernel import Kernel
from assay.compiler.machine import number
from tests.lowering import check, planned, traced

IN_PARTS = "part*"


def kernels_of(function: Callable[..., Any], *args: Tensor) -> tuple[Kernel, ...]:
    return planned(traced(function, *args)).kernels


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    torch._dynamo.reset()
    return torch.compile(function, backend=assay, options={"fallback": "error"}, dynamic=False)


def both_ways(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Numbers less the largest of their row, and two reductions for each column."""
    return x - x.amax(1, keepdim=True), (x * y).sum(0), x.amin(0)


def gradients_of_norm(dy: Tensor, x: Tensor, w: Tensor, mean: Tensor, rstd: Tensor) -> tuple[Tensor, ...]:
    backward = torch.ops.aten.native_layer_norm_backward
    return backward(dy, x, [x.shape[-1]], mean, rstd, w, w, [True, True, True])  # type: ignore[no-any-return]


def given_to_norm(rows: int, columns: int, dtype: torch.dtype = torch.float32) -> tuple[Tensor, ...]:
    x = torch.randn(rows, columns, dtype=dtype) * 3 + 1
    mean, rstd = x.mean(1, keepdim=True), (x.var(1, keepdim=True, correction=0) + 1e-5).rsqrt()
    return torch.randn(rows, columns, dtype=dtype), x, torch.randn(columns, dtype=dtype), mean, rstd


def test_gradients_of_a_norm_are_one_kernel_that_reads_each_row_once() -> None:
    (kernel,) = kernels_of(gradients_of_norm, *given_to_norm(512, 256))
    text = emit_kernel(kernel)
    assert text.count("for (i64 i0") == 1 and IN_PARTS in text


@pytest.mark.parametrize("shape", [(256, 128), (257, 129), (1000, 33), (4099, 70)], ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_gradients_of_a_norm_are_as_eager(shape: tuple[int, int], dtype: torch.dtype) -> None:
    args = given_to_norm(*shape, dtype)
    for ours, eager in zip(compiled(gradients_of_norm)(*args), gradients_of_norm(*args), strict=True):
        torch.testing.assert_close(ours, eager, atol=1e-3 if dtype is torch.float32 else 1e-11, rtol=1e-4)


@pytest.mark.parametrize("shape", [(256, 128), (300, 1030), (4099, 33), (1025, 2)], ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.int32], ids=str)
def test_rows_and_columns_are_as_eager(shape: tuple[int, int], dtype: torch.dtype) -> None:
    """Of whole numbers every order of adding gives the same sum."""
    x, y = (torch.randint(-4, 4, shape, dtype=torch.int32).to(dtype) for _ in range(2))
    is_one = len(kernels_of(both_ways, x, y)) == 1
    assert is_one == (shape[1] > 2)
    for ours, eager in zip(compiled(both_ways)(x, y), both_ways(x, y), strict=True):
        torch.testing.assert_close(ours, eager, rtol=0, atol=0)


def test_rows_and_columns_with_numbers_that_are_none() -> None:
    x, y = torch.randint(-9, 9, (500, 100)).float(), torch.ones(500, 100)
    x[3, 5], x[77, 5], x[400, 6], x[499, 99] = float("inf"), float("-inf"), float("nan"), float("inf")
    for ours, eager in zip(compiled(both_ways)(x, y), both_ways(x, y), strict=True):
        torch.testing.assert_close(ours, eager, rtol=0, atol=0, equal_nan=True)


def test_rows_and_columns_are_what_the_reference_gives() -> None:
    schedule = check(both_ways, *(torch.randint(-9, 9, (256, 128)).float() for _ in range(2)))
    assert len(schedule.kernels) == 1


def test_sums_over_many_rows_err_at_most_as_eager() -> None:
    x = torch.rand(1 << 16, 40)  # of one sign: rounding only adds up

    def function(x: Tensor) -> tuple[Tensor, Tensor]:
        return x / x.sum(1, keepdim=True), x.sum(0)

    exact = x.double().sum(0)
    ours, eager = compiled(function)(x)[1], x.sum(0)
    assert len(kernels_of(function, x)) == 1
    assert (ours - exact).abs().max() <= (eager - exact).abs().max()


def test_rows_and_columns_are_the_same_for_any_number_of_threads() -> None:
    args = given_to_norm(3000, 100)
    run, before, results = compiled(gradients_of_norm), torch.get_num_threads(), []
    try:
        for threads in (1, 2, 3, 8):
            torch.set_num_threads(threads)
            results.append(run(*args))
    finally:
        torch.set_num_threads(before)
    for result in results[1:]:
        assert all(torch.equal(one, other) for one, other in zip(result, results[0], strict=True))


def test_training_a_norm_is_as_eager() -> None:
    torch.manual_seed(0)
    layer, x = torch.nn.Sequential(torch.nn.RMSNorm(64), torch.nn.LayerNorm(64)), torch.randn(8, 50, 64)
    found = []
    for run in (layer, compiled(layer)):
        layer.zero_grad()
        given = x.clone().requires_grad_()
        F.gelu(run(given)).square().sum().backward()
        assert given.grad is not None
        found.append([given.grad, *(parameter.grad.clone() for parameter in layer.parameters())])  # type: ignore[union-attr]
    for ours, eager in zip(found[1], found[0], strict=True):
        torch.testing.assert_close(ours, eager, rtol=1e-4, atol=1e-4)


def test_what_is_small_or_of_other_rows_stays_two_kernels() -> None:
    def of_two(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        return x - x.amax(1, keepdim=True), y.sum(0)

    def in_turn(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        z = x - x.amax(1, keepdim=True)
        return z, (z * y).sum(0)

    def count(function: Callable[..., Any], rows: int, columns: int) -> int:
        return len(kernels_of(function, torch.empty(rows, columns), torch.empty(rows, columns)))

    assert count(both_ways, 512, 256) == 1
    assert count(both_ways, 128, 512) == 2, "parts of few rows"
    assert count(both_ways, 512, 16) == 2, "few columns"
    assert count(both_ways, 512, number("column_totals")) == 2, "totals that no near cache holds"
    assert count(of_two, 512, 256) == 2, "nothing is read twice"
    assert count(in_turn, 512, 256) == 2, "the one needs the other"
