"""Sorted rows and their greatest elements against eager: lengths, ties, NaN, dtypes, layouts, gradients, errors."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor

from assay.compiler import journal
from assay.compiler.entry.dynamo import assay, compile_fx_inner
from assay.compiler.ops.reductions.sorting import (
    LONGEST_INSERTED,
    LONGEST_KEPT,
    LONGEST_NARROW,
    LONGEST_SORTED,
    MOST_TAKEN,
    RARELY_EQUAL,
)
from tests.lowering import assert_same, check, error_of, traced

FLOATS = [torch.float32, torch.float64, torch.bfloat16, torch.float16]
INTEGERS = [torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool]
EDGES = [math.nan, math.inf, -math.inf, 0.0, -0.0, 1.0, -1.0, -math.nan]
Function = Callable[..., tuple[Tensor, ...]]


def rows_of(shape: tuple[int, ...], dtype: torch.dtype, seed: int = 0) -> Tensor:
    """Rows with many ties; of floats NaN, infinities and both zeros, of integers the extremes."""
    generator = torch.Generator().manual_seed(seed)
    if dtype is torch.bool:
        return torch.randint(0, 2, shape, generator=generator).bool()
    ends = torch.tensor(EDGES) if dtype.is_floating_point else torch.tensor([*_limits(dtype), 0, 1])
    places = torch.randint(0, 4 * len(ends), shape, generator=generator)
    plain = torch.randint(0, 9, shape, generator=generator).to(dtype)
    return torch.where(places < len(ends), ends.to(dtype)[places % len(ends)], plain)


def _limits(dtype: torch.dtype) -> tuple[int, int]:
    return torch.iinfo(dtype).min, torch.iinfo(dtype).max


def sorts(dim: int = -1) -> Function:
    return lambda x: (*x.sort(dim=dim, stable=True), *x.sort(dim=dim, descending=True, stable=True))


def best(count: int, dim: int = -1) -> Function:
    return lambda x: (*x.topk(count, dim), *x.topk(count, dim, largest=False))


def compiled(function: Function, *args: Tensor) -> tuple[Tensor, ...]:
    return tuple(compile_fx_inner(traced(function, *args).module, list(args))(list(args)))


def fallbacks(function: Function, *args: Tensor, mode: str = "fake") -> set[str]:
    """The operators that a program leaves to ATen, the kernels held against eager as the reference runs them."""
    return set(check(function, *args, mode=mode).counts.fallbacks)


def assert_sorted_as_eager(x: Tensor, dim: int = -1) -> None:
    for position, (ours, theirs) in enumerate(zip(compiled(sorts(dim), x), sorts(dim)(x), strict=True)):
        assert_same(ours, theirs, f"output {position}", rtol=0, atol=0)


def assert_best_as_eager(x: Tensor, count: int, dim: int = -1) -> None:
    """Values are eager's; positions, whose order among equals eager leaves open, are places of these, each one once."""
    found, expected = compiled(best(count, dim), x), best(count, dim)(x)
    for values, places, theirs in zip(found[::2], found[1::2], expected[::2], strict=True):
        assert_same(values, theirs, "values", rtol=0, atol=0)
        assert places.dtype is torch.int64 and places.shape == theirs.shape
        assert_same(values, x.gather(dim, places), "values at the places", rtol=0, atol=0)
        assert places.numel() == 0 or (places.sort(dim)[0].diff(dim=dim) > 0).all(), "a place twice"


# ---- values ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [*FLOATS, *INTEGERS], ids=str)
@pytest.mark.parametrize("length", [1, 2, 3, 8, 17, 32])
def test_sort_as_eager(length: int, dtype: torch.dtype) -> None:
    assert_sorted_as_eager(rows_of((37, length), dtype))


@pytest.mark.parametrize("length", [33, 60, 64])
def test_sort_of_the_longest_rows_as_eager(length: int) -> None:
    assert_sorted_as_eager(rows_of((9, length), torch.float32))


@pytest.mark.parametrize("dtype", RARELY_EQUAL, ids=str)
@pytest.mark.parametrize("rows", [3, 300], ids=["few", "many"])
@pytest.mark.parametrize(("length", "count"), [(1, 1), (2, 2), (7, 2), (8, 8), (21, 3), (70, 5)])
def test_topk_as_eager(length: int, count: int, rows: int, dtype: torch.dtype) -> None:
    assert_best_as_eager(rows_of((rows, length), dtype), count)


def test_topk_of_more_than_passes_find_is_by_rank() -> None:
    x = rows_of((40, 30), torch.float32)
    assert_best_as_eager(x, MOST_TAKEN + 3)
    assert not fallbacks(lambda x: (x.topk(MOST_TAKEN + 3)[0],), x[:2])


def test_topk_of_a_long_row_as_eager() -> None:
    x = torch.randn(3, 3 * LONGEST_KEPT, generator=torch.Generator().manual_seed(0))
    x[0, 100], x[1, 7::5], x[2] = math.nan, math.inf, -math.inf
    assert_best_as_eager(x, 3)


def test_topk_takes_the_worst_element_there_can_be() -> None:
    """What stands in for the elements that are taken is no less than these."""
    assert_best_as_eager(torch.full((20, 5), -math.inf), 4)
    assert_best_as_eager(torch.full((20, 5), math.inf), 4)
    assert_best_as_eager(torch.full((20, 5), math.nan), 4)


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_sort_and_topk_of_drawn_rows_as_eager(data: st.DataObject) -> None:
    """One compile a length, over rows in every order of few values."""
    length = data.draw(st.sampled_from([2, 5, 9]))
    row = st.lists(st.sampled_from(EDGES), min_size=length, max_size=length)
    x = torch.tensor(data.draw(st.lists(row, min_size=20, max_size=20)))
    ours = _of_length(length)(x)
    theirs = (*sorts()(x), x.topk(2)[0], x.topk(2, largest=False)[0])
    for position, (found, expected) in enumerate(zip(ours, theirs, strict=True)):
        assert_same(found, expected, f"output {position} of {x.tolist()}", rtol=0, atol=0)


@functools.cache
def _of_length(length: int) -> Callable[[Tensor], tuple[Tensor, ...]]:
    function: Function = lambda x: (*sorts()(x), x.topk(2)[0], x.topk(2, largest=False)[0])
    x = torch.zeros(20, length)
    run = compile_fx_inner(traced(function, x).module, [x])
    return lambda x: tuple(run([x]))


# ---- shapes and layouts ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(), (1,), (0,), (3, 0), (0, 3), (4, 1, 2)])
def test_sort_and_topk_of_few_elements_as_eager(shape: tuple[int, ...]) -> None:
    x = rows_of(shape, torch.float32)
    count = min(1, x.shape[-1]) if shape else 1
    assert not fallbacks(lambda x: (*sorts()(x), *best(count)(x), x.argsort()), x)
    assert_sorted_as_eager(x)


@pytest.mark.parametrize("dim", [0, 1, -1])
@pytest.mark.parametrize("layout", ["plain", "turned", "sliced", "expanded"])
def test_sort_and_topk_of_any_layout_as_eager(layout: str, dim: int) -> None:
    x = rows_of((6, 5, 12), torch.float32)
    x = {"plain": x, "turned": x.permute(2, 0, 1), "sliced": x[:, ::2, 1:], "expanded": x[:1].expand(6, 5, 12)}[layout]
    assert_sorted_as_eager(x, dim)
    assert_best_as_eager(x, 2, dim)


def test_sort_and_topk_are_one_kernel_with_what_is_computed_from_them() -> None:
    def route(x: Tensor) -> tuple[Tensor, ...]:
        values, places = x.topk(4)
        return values / values.sum(-1, keepdim=True), places

    x = torch.rand(2, 12)
    assert len(check(route, x).kernels) == 1
    assert len(check(lambda x: tuple(x.sort(stable=True)), torch.rand(2, 40)).kernels) == 1


def test_one_of_two_outputs_is_enough() -> None:
    x = rows_of((5, 6), torch.float32)
    functions: tuple[Function, ...] = (
        lambda x: (x.argsort(stable=True),),
        lambda x: (x.sort(0)[0],),
        lambda x: (torch.msort(x),),
        lambda x: (x.topk(2).values,),
    )
    for function in functions:
        assert not fallbacks(function, x)


# ---- what is left to ATen --------------------------------------------------------------------------------------------


def test_long_rows_and_symbolic_ones_are_left_to_aten() -> None:
    longest = LONGEST_SORTED["cpu"]
    assert fallbacks(lambda x: (x.sort()[0],), torch.randn(2, longest + 1)) == {"aten.sort"}
    assert fallbacks(lambda x: (x.sort(stable=True)[0],), torch.randn(2, LONGEST_NARROW + 1).half())
    assert fallbacks(lambda x: (x.topk(MOST_TAKEN + 1)[0],), torch.randn(2, longest + 1)) == {"aten.topk"}
    assert fallbacks(lambda x: (x.topk(2)[0], x.sort()[0]), torch.randn(3, 6), mode="symbolic")


def test_equals_are_in_the_order_of_eager() -> None:
    """Where nothing is promised of them, results with many are left to ATen."""
    for dtype in INTEGERS:
        x = rows_of((20, LONGEST_INSERTED), dtype)
        (ours,) = compiled(lambda x: (x.argsort(),), x)
        assert torch.equal(ours, x.argsort()), dtype
        assert not fallbacks(lambda x: (x.argsort(),), x[:2])
        longer = rows_of((2, LONGEST_INSERTED + 1), dtype)
        assert fallbacks(lambda x: (x.argsort(),), longer) == {"aten.sort"}
        assert not fallbacks(lambda x: (x.argsort(stable=True),), longer)
    for dtype in (torch.int64, torch.bfloat16):
        assert fallbacks(lambda x: x.topk(2), rows_of((3, 8), dtype)) == {"aten.topk"}


def test_topk_of_what_is_made_of_halves_has_eagers_order_of_equals() -> None:
    """A router's: equal logits have equal probabilities. Floats of the program's own are seldom equal."""
    logits = torch.randint(0, 12, (20, 64), generator=torch.Generator().manual_seed(5)).bfloat16()

    def route(x: Tensor) -> tuple[Tensor, ...]:
        return (*x.float().softmax(-1).topk(4), *(x.double() * 2).relu().topk(3))

    assert fallbacks(route, logits) == {"aten.topk"}
    for ours, theirs in zip(torch.compile(route, backend="assay")(logits), route(logits), strict=True):
        torch.testing.assert_close(ours, theirs)
    assert not fallbacks(lambda x, y: (x.float() + y).topk(4), logits, torch.randn(20, 64))
    assert not fallbacks(lambda x: x.softmax(-1).topk(4), torch.randn(20, 64))


def test_unsorted_topk_has_eagers_order() -> None:
    x = torch.randn(4, 20, generator=torch.Generator().manual_seed(3))
    assert fallbacks(lambda x: x.topk(6, sorted=False), x) == {"aten.topk"}
    assert not fallbacks(lambda x: x.topk(1, sorted=False), x)


def test_exact_numerics_leave_the_order_of_equals_to_aten() -> None:
    torch._dynamo.reset()
    x = rows_of((7, 12), torch.float32)
    before = dict(journal.totals()["fallbacks"])
    function = lambda x: (*x.sort(), *x.topk(3), *x.sort(stable=True))
    found = torch.compile(function, backend=assay, options={"numerics": "exact"})(x)
    for ours, theirs in zip(found, function(x), strict=True):
        assert torch.equal(ours.nan_to_num(9), theirs.nan_to_num(9))
    grown = {name for name, count in journal.totals()["fallbacks"].items() if count > before.get(name, 0)}
    assert grown == {"aten.sort", "aten.topk"}


@pytest.mark.parametrize("call", ["x.topk(7)", "x.topk(-1)", "x.topk(2, 5)", "x.sort(4)", "x.topk(2, 0)"])
def test_sort_and_topk_that_eager_rejects_raise_as_eager(call: str) -> None:
    torch._dynamo.reset()
    function, x = eval(f"lambda x: {call}"), torch.randn(1, 6)
    expected = error_of(function, x)
    found = error_of(torch.compile(function, backend=assay), x)
    assert expected is not None and found is not None and issubclass(found, expected)


# ---- gradients -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dim", [0, 1])
def test_gradients_of_sort_and_topk_as_eager(dim: int) -> None:
    torch._dynamo.reset()
    base = torch.randperm(60, generator=torch.Generator().manual_seed(1)).view(6, 10).float()  # without equals

    def loss(x: Tensor) -> Tensor:
        values, places = x.topk(3, dim)
        return (x.sort(dim)[0] * torch.arange(60.0).view(6, 10)).sum() + (values.square() * (places + 1)).sum()

    def gradient(function: Callable[..., Any]) -> Tensor:
        x = base.clone().requires_grad_()
        function(x).backward()
        assert x.grad is not None
        return x.grad

    options = {"fallback": "error"}
    assert_same(gradient(torch.compile(loss, backend=assay, options=options)), gradient(loss), "gradient")
