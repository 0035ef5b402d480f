"""Scatters against eager: modes, dtypes, updates that meet, positions out of range, and what may run side by side."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional

from assay.compiler.codegen.loops.nest import apart_loops
from assay.compiler.entry.dynamo import assay
from assay.compiler.errors import VerifyError
from assay.compiler.ir.loops.index import Index, Int, Symbol
from assay.compiler.ir.loops.kernel import Allocate, Bind, Const, Kernel, Load, Loop, Store
from assay.compiler.ir.loops.verify import verify
from tests.lowering import assert_same, check, error_of, executable, planned, traced

aten = torch.ops.aten
GENERATOR = torch.Generator().manual_seed(0)
TABLE = torch.randn(6, 5, generator=GENERATOR)
SOURCE = torch.randn(4, 5, generator=GENERATOR)
CELLS = torch.tensor([[0, 2, 1, 5, 0], [3, 3, 2, 0, 0], [1, 1, 1, 1, 4], [5, 0, 0, 2, 2]])
ROWS = torch.tensor([4, 0, 4, 2])
COLUMNS = torch.tensor([1, 3, 3])
OPERANDS = (TABLE, SOURCE, CELLS, ROWS, COLUMNS)

PROGRAMS: dict[str, Callable[..., tuple[torch.Tensor, ...]]] = {
    "scatter": lambda x, s, k, r, c: (x.scatter(0, k, s), x.scatter(0, k, 2.5), x.scatter(1, k[:, :3] % 5, s)),
    "scatter into part": lambda x, s, k, r, c: (x.scatter(0, k[:2, :3], s), x.t().scatter(1, k.t(), s.t())),
    "scatter_add": lambda x, s, k, r, c: (
        x.scatter_add(0, k, s),
        x.scatter_add(1, k % 5, s),
        x[0].scatter_add(0, c, s[0]),
    ),
    "reduced": lambda x, s, k, r, c: tuple(x.scatter_reduce(0, k, s, op) for op in ("sum", "prod", "amax", "amin")),
    "index_add": lambda x, s, k, r, c: (x.index_add(0, r, s), x.index_add(1, c, x[:, :3], alpha=3)),
    "index_add of one dimension": lambda x, s, k, r, c: (x[0].index_add(0, c, s[0, :3]),),
    "index_copy": lambda x, s, k, r, c: (x.index_copy(0, r[1:], s[1:]), x.index_copy(1, c[:2], x[:, :2])),
    "index_fill": lambda x, s, k, r, c: (x.index_fill(0, r, 2.0), x.index_fill(1, c - 5, s[0, 0])),
    "index_put": lambda x, s, k, r, c: (x.index_put((r[1:],), s[1:]), x.index_put((r - 6,), s, True)),
    "index_put of cells": lambda x, s, k, r, c: (
        x.index_put((r, r), s[:, 0], True),
        x.index_put((r[:, None], c), s[:, :3], True),
    ),
    "index_put broadcast": lambda x, s, k, r, c: (x.index_put((r,), s[0], True), x.index_put((k,), s[0, 0], True)),
    "index_put apart": lambda x, s, k, r, c: (
        aten.index_put(x, [None, c], x[:, :3], True),
        aten.index_put(x.view(2, 3, 5), [c % 2, None, c], s[:3, :3], True),
    ),
    "embedding": lambda x, s, k, r, c: (
        aten.embedding_dense_backward(s[:, :, None] * x[0] + 1, k, 7, 2, False),
        aten.embedding_dense_backward(s, r - 1, 3, -1, False),
    ),
    "constant positions": lambda x, s, k, r, c: (
        torch.zeros(9).index_add(0, torch.zeros(5, dtype=torch.long), torch.ones(5)),
    ),
    "around": lambda x, s, k, r, c: (
        x.scatter_add(0, k, s * 2 + 1).relu().sum(1),
        (x + 1).index_add(0, (r * 2) % 5, s.softmax(1)),
        torch.zeros(6, 5).scatter_add(0, k, s.exp()) * x,
    ),
    "one after the other": lambda x, s, k, r, c: (x.index_add(0, r, s).index_add(0, r, s)[r], x.index_add(0, r, s) + x),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_scatter_as_eager(name: str) -> None:
    schedule = check(PROGRAMS[name], *OPERANDS)
    assert not schedule.counts.fallbacks
    check(PROGRAMS[name], *OPERANDS, mode="symbolic")


def test_what_needs_counts_is_left_to_aten() -> None:
    schedule = check(
        lambda x, k, s: (x.scatter_reduce(0, k, s, "mean"), x.scatter_reduce(0, k, s, "sum", include_self=False)),
        TABLE,
        CELLS,
        SOURCE,
    )
    assert schedule.counts.fallbacks == {"aten.scatter_reduce.two": 1}


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16, torch.int64, torch.int32, torch.uint8])
def test_scatter_dtypes(dtype: torch.dtype) -> None:
    x, s = (TABLE.abs() * 4).to(dtype), (SOURCE.abs() * 4).to(dtype)
    for name in ("scatter", "scatter_add", "reduced", "index_put of cells"):
        check(PROGRAMS[name], x, s, *OPERANDS[2:])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_sums_of_halves_round_where_eager_rounds(dtype: torch.dtype) -> None:
    """Bitwise; eager rounds once in `scatter_add`, `scatter_reduce` and `index_add` of rows, else after each update."""
    rows = torch.tensor([4, 0, 4, 2, 4])
    cells = rows[:, None].expand(5, 5).contiguous()

    def every(x: torch.Tensor, s: torch.Tensor) -> tuple[torch.Tensor, ...]:
        sums = x.index_add(0, rows, s), x.scatter_add(0, cells, s), x.scatter_reduce(0, cells, s, "prod")
        return (*sums, x.index_put((rows,), s, True), aten.embedding_dense_backward(s, rows, 6, -1, False))

    for _ in range(5):
        x, s = (torch.randn(size, 5, generator=GENERATOR).to(dtype) for size in (6, 5))
        run = executable(planned(traced(every, x, s)))
        for number, (ours, theirs) in enumerate(zip(run([x, s]), every(x, s), strict=True)):
            assert torch.equal(ours, theirs), number


def test_scatter_of_nan_and_booleans() -> None:
    x, s = TABLE.clone(), SOURCE.clone()
    x[0, 0] = s[1, 1] = float("nan")
    check(PROGRAMS["reduced"], x, s, *OPERANDS[2:])
    check(lambda x, s, k: (x.scatter(0, k, s), x.scatter_add(0, k, s)), x > 0, s > 0, CELLS)


def test_compiled_scatters_as_eager() -> None:
    def every(*operands: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tuple(result for program in PROGRAMS.values() for result in program(*operands))

    for number, (ours, theirs) in enumerate(
        zip(torch.compile(every, backend=assay)(*OPERANDS), every(*OPERANDS), strict=True)
    ):
        assert_same(ours, theirs, f"result {number}")


def test_updates_that_meet_are_in_the_order_of_the_index() -> None:
    """Bitwise as eager, in sums that depend on their order, and the last of equal positions stays.

    Eager itself adds in no certain order where `index_put` has more than 32768 elements.
    """
    x, s = torch.zeros(300, 300), torch.randn(300, 300, generator=GENERATOR)
    k, r = (torch.randint(0, 9, shape, generator=GENERATOR) for shape in ((300, 300), (300,)))

    def every(x: torch.Tensor, s: torch.Tensor, k: torch.Tensor, r: torch.Tensor) -> tuple[torch.Tensor, ...]:
        sums = x.scatter_add(1, k, s), x.index_add(0, r, s), x[:, :90].index_put((r,), s[:, :90], True)
        return (*sums, x.scatter(0, k, s), x.scatter(1, k, s))

    compiled = torch.compile(every, backend=assay)
    before = torch.get_num_threads()
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            for number, (ours, theirs) in enumerate(zip(compiled(x, s, k, r), every(x, s, k, r), strict=True)):
                assert torch.equal(ours, theirs), number
    finally:
        torch.set_num_threads(before)


def test_inputs_are_not_updated() -> None:
    x = TABLE.clone()
    torch.compile(lambda x, r, s: x.index_add(0, r, s), backend=assay)(x, ROWS, SOURCE)
    assert torch.equal(x, TABLE)


OUT_OF_RANGE: dict[str, Callable[..., Any]] = {
    "scatter": lambda x, s, r: (x.scatter(0, r[:, None], s),),
    "scatter_add": lambda x, s, r: (x.scatter_add(0, r[:, None], s),),
    "scatter_reduce": lambda x, s, r: (x.scatter_reduce(0, r[:, None], s, "amax"),),
    "index_add": lambda x, s, r: (x.index_add(0, r, s),),
    "index_add of one dimension": lambda x, s, r: (x[:, 0].contiguous().index_add(0, r, s[:, 0].contiguous()),),
    "index_copy": lambda x, s, r: (x.index_copy(0, r, s),),
    "index_fill": lambda x, s, r: (x.index_fill(0, r, 1.0),),
    "index_put": lambda x, s, r: (x.index_put((r,), s),),
    "index_put accumulated": lambda x, s, r: (x.index_put((r,), s, True),),
    "embedding": lambda x, s, r: (aten.embedding_dense_backward(s, r, 6, -1, False),),
}


@pytest.mark.parametrize("name", OUT_OF_RANGE)
def test_position_out_of_range_raises_as_eager(name: str) -> None:
    function = OUT_OF_RANGE[name]
    run = executable(planned(traced(function, TABLE, SOURCE, ROWS)))
    for wrong in (7, -7, 2**40):
        rows = ROWS.clone()
        rows[2] = wrong
        assert error_of(run, [TABLE, SOURCE, rows]) is error_of(function, TABLE, SOURCE, rows), wrong
    assert error_of(run, [TABLE, SOURCE, ROWS]) is None


# ---- what may run side by side ---------------------------------------------------------------------------------------

v, i, j = Symbol("v"), Symbol("i"), Symbol("j")


def update(index: Index, extent: int = 4) -> Store:
    body = Load("x", i * 5 + j, torch.float32)
    position = Load("t", i, torch.int64)
    return Store("y", index, Bind(Loop("v", Int(extent)), position, body, torch.float32), "accumulate")


@pytest.mark.parametrize(
    ("index", "apart"),
    [
        (v * 5 + j, {"j"}),  # rows at data: columns are apart
        (i * 4 + v, {"i"}),  # cells of a row at data: rows are apart
        (i * 3 + v, set()),  # rows that overlap
        (v, set()),
        (v * 15 + i * 5 + j, {"i", "j"}),
        ((v + i) % 4, set()),
    ],
)
def test_loops_are_apart_where_strides_prove_it(index: Index, apart: set[str]) -> None:
    assert apart_loops(update(index), (Loop("i", Int(3)), Loop("j", Int(5)))) == apart


def test_verify_wants_the_variable_of_a_store_bound() -> None:
    kernel: Kernel = planned(traced(lambda x, r, s: (x.index_add(0, r, s),), TABLE, ROWS, SOURCE)).kernels[-1]
    store = kernel.stores[0]
    assert isinstance(store.expr, Bind)
    broken = dataclasses.replace(store, expr=Const(1.0, torch.float32))
    with pytest.raises(VerifyError, match="is not bound"):
        verify(dataclasses.replace(kernel, stores=(broken,)))


# ---- reductions without the elements that are there, positions among all elements, pools -----------------------------

DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.uint8, torch.bool)


def sample(dtype: torch.dtype, *shape: int) -> torch.Tensor:
    values = torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape))) * 3
    if dtype.is_floating_point:
        values.view(-1)[:3] = torch.tensor([float("nan"), float("inf"), -float("inf")])
    return (values if dtype.is_floating_point else values.abs()).to(dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("reduce", ["sum", "prod", "amax", "amin"])
def test_scatter_reduce_as_eager(reduce: str, dtype: torch.dtype) -> None:
    def function(x: torch.Tensor, i: torch.Tensor, v: torch.Tensor) -> tuple[torch.Tensor, ...]:
        given = (x.scatter_reduce(dim, i, v, reduce, include_self=kept) for dim in (0, 1) for kept in (True, False))
        return (*given, torch.scatter_reduce(x[0, 0], 0, i[0, 0], v[0, 0], reduce, include_self=False))

    schedule = check(
        function, sample(dtype, 4, 5), torch.tensor([[0, 3, 1, 3, 0], [3, 3, 3, 0, 0]]), sample(dtype, 2, 5)
    )
    is_left = dtype is torch.bfloat16 and reduce in ("sum", "prod")
    assert bool(schedule.counts.fallbacks) is is_left


@pytest.mark.parametrize("dtype", DTYPES[:-1])
@pytest.mark.parametrize("reduce", ["prod", "amax", "amin"])
@pytest.mark.filterwarnings("ignore:index_reduce")
def test_index_reduce_as_eager(reduce: str, dtype: torch.dtype) -> None:
    def function(x: torch.Tensor, i: torch.Tensor, v: torch.Tensor) -> tuple[torch.Tensor, ...]:
        given = (x.index_reduce(0, i, v, reduce, include_self=kept) for kept in (True, False))
        return (*given, x[:, 0].index_reduce(0, i, v[:, 1], reduce), x.t().index_reduce(1, i, v.t(), reduce))

    x, v = sample(dtype, 4, 5), sample(dtype, 3, 5)
    assert not check(function, x, torch.tensor([0, 3, 0]), v).counts.fallbacks


@pytest.mark.parametrize("dtype", [*DTYPES, torch.complex64])
def test_put_as_eager(dtype: torch.dtype) -> None:
    def function(x: torch.Tensor, i: torch.Tensor, v: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return x.put(i, v), x.put(i - 20, v, accumulate=True), x.t().put(i, v), x.put(i[0, 0], v[0, 0])

    index = torch.tensor([[0, 19, 7], [7, 7, 3]])
    assert not check(function, sample(dtype, 4, 5), index, sample(dtype, 2, 3)).counts.fallbacks


def test_masked_lookups_and_updates_as_eager() -> None:
    lookup, update = torch.ops.aten._unsafe_masked_index, torch.ops.aten._unsafe_masked_index_put_accumulate

    def function(x: torch.Tensor, i: torch.Tensor, m: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return lookup(x, m, [i], 1.0), lookup(x, m, [i * 100, None], 0), update(x, m, [i - 9], x[:3])

    mask = torch.tensor([True, False, True])[:, None].expand(3, 5).contiguous()
    for dtype in (torch.float32, torch.int64, torch.complex64):
        assert not check(function, sample(dtype, 4, 5), torch.tensor([2, 0, 3]), mask).counts.fallbacks


def test_max_unpool_as_eager() -> None:
    image = sample(torch.float32, 2, 3, 4, 6, 6).nan_to_num()
    flat, at = functional.max_pool2d(image[:, :, 0], 2, return_indices=True)
    deep, deep_at = functional.max_pool3d(image, 2, return_indices=True)

    def function(*args: torch.Tensor) -> tuple[torch.Tensor, ...]:
        flat, at, deep, deep_at = args
        return (
            functional.max_unpool2d(flat, at, 2),
            functional.max_unpool2d(flat[0], at[0], 2, output_size=(7, 6)),
            functional.max_unpool3d(deep, deep_at, 2),
        )

    assert not check(function, flat, at, deep, deep_at).counts.fallbacks


@pytest.mark.parametrize("name", ["put", "unpool", "index_reduce", "scatter_reduce"])
@pytest.mark.filterwarnings("ignore:index_reduce")
def test_update_out_of_range_raises_as_eager(name: str) -> None:
    functions: dict[str, Callable[..., Any]] = {
        "put": lambda x, i: (x.put(i, x[0, 0, 0, :2]),),
        "unpool": lambda x, i: (functional.max_unpool2d(x[..., :1, :2], i.expand(1, 1, 1, 2), 2),),
        "index_reduce": lambda x, i: (x.index_reduce(3, i, x[..., :2], "amax"),),
        "scatter_reduce": lambda x, i: (x.scatter_reduce(3, i[None, None, None], x, "amax", include_self=False),),
    }
    x, right = torch.randn(1, 1, 2, 2), torch.tensor([0, 1])
    run = executable(planned(traced(functions[name], x, right)))
    for wrong in (torch.tensor([0, 99]), torch.tensor([-99, 0])):
        expected = error_of(functions[name], x, wrong)
        assert expected is not None
        assert error_of(run, [x, wrong]) is expected


ONE_A_ROW: dict[str, Callable[..., torch.Tensor]] = {
    "a number": lambda t, s: torch.zeros(4, 7).scatter(1, t, -1.0),
    "of a source": lambda t, s: torch.full((4, 7), 0.5).scatter(1, t, s),
    "of a larger source": lambda t, s: s.new_zeros(4, 7).scatter(1, t, s.expand(4, 3) * 2),
    "added": lambda t, s: torch.ones(4, 7).scatter_add(1, t, s),
    "added, of halves": lambda t, s: torch.zeros(4, 7, dtype=torch.bfloat16).scatter_add(1, t, s.bfloat16()),
    "along the first": lambda t, s: torch.zeros_like(s.expand(4, 7).t()).scatter(0, t.t(), s.t()),
    "of a vector": lambda t, s: torch.zeros(7).scatter(0, t[2], 3.0),
    "booleans": lambda t, s: torch.zeros(4, 7, dtype=torch.bool).scatter(1, t, True),
}
TARGETS = torch.tensor([[0], [6], [3], [3]])


@pytest.mark.parametrize("name", ONE_A_ROW)
def test_rows_of_a_number_but_for_one_element_take_no_memory(name: str) -> None:
    """As the gradient of a loss's labels: what reads it computes it."""
    source = torch.tensor([[1.5], [torch.nan], [-torch.inf], [2.0]])
    other = ONE_A_ROW[name](TARGETS, source)
    function = lambda t, s: (torch.where(other.isfinite(), ONE_A_ROW[name](t, s).mul(2), 1),)
    schedule = planned(traced(function, TARGETS, source))
    made = [step for step in schedule.steps if isinstance(step, Allocate)]
    assert len(made) == 1, "the result, and nothing for what it is computed from"
    (found,) = executable(schedule)([TARGETS, source])
    assert_same(found, function(TARGETS, source)[0], name, rtol=0, atol=0)


@pytest.mark.parametrize("position", [-1, 7])
@pytest.mark.parametrize("name", ONE_A_ROW)
def test_one_element_out_of_range_raises_as_eager(name: str, position: int) -> None:
    targets, source = TARGETS.clone(), torch.ones(4, 1)
    targets[2] = position
    function = ONE_A_ROW[name]
    assert error_of(torch.compile(function, backend="assay"), targets, source) == error_of(function, targets, source)


@pytest.mark.parametrize("rows", [3, 4])
def test_rows_without_an_element_are_left_as_they_are(rows: int) -> None:
    """An index of fewer rows, or of two elements a row, says where some are written, not what each is."""
    index = torch.tensor([[0, 1], [6, 6], [3, 0], [3, 2]])[:rows, : 1 if rows < 4 else 2]
    function = lambda t: (torch.zeros(4, 7).scatter(1, t, 2.0) + 1,)
    check(function, index)
