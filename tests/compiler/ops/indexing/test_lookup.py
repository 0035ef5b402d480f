"""Lookups at positions that are data, against eager: values, layouts, dtypes, and what positions out of range raise."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn.functional import embedding

from assay.compiler.entry.dynamo import assay
from tests.lowering import assert_same, check, error_of, executable, planned, traced

TABLE = torch.randn(6, 5, generator=torch.Generator().manual_seed(0))
ROWS = torch.tensor([[0, 5], [3, -2]])
COLUMNS = torch.tensor([[0, 4, 1], [3, 3, 2]])

PROGRAMS: dict[str, Callable[[torch.Tensor, torch.Tensor, torch.Tensor], tuple[torch.Tensor, ...]]] = {
    "rows": lambda x, i, j: (x[i], x[i[0]], torch.ops.aten.index(x, [i[0, 1]])),
    "columns": lambda x, i, j: (x[:, j], x[:, j[0]].relu()),
    "two indices": lambda x, i, j: (x[i[:, :1], j], x[j, j]),
    "apart": lambda x, i, j: (
        x.view(2, 3, 5)[j % 2, :, j],
        x.view(2, 3, 5)[:, j % 3],
        x.view(2, 3, 5)[i[0] % 2, :, 1:],
    ),
    "narrow indices": lambda x, i, j: (x[i.int()], x[j.int()], x.gather(1, j)),
    "gather": lambda x, i, j: (x.gather(1, j), x.t().gather(0, j) + 1, x[:, ::2].gather(0, j % 3)),
    "index_select": lambda x, i, j: (
        x.index_select(0, j[0]),
        x.t().index_select(1, j[1]),
        x[0].index_select(0, j[0, 0]),
    ),
    "take": lambda x, i, j: (x.take(i), x.t().take(j)),
    "embedding": lambda x, i, j: (embedding(j, x), embedding(j, x.exp()).sum(-1), embedding(j, x, padding_idx=1)),
    "position computed": lambda x, i, j: (
        x[torch.arange(6), x.argmax(1)],
        x[x.argmax(0)],
        x[(x[:, 0] * 100).long() % 6],
    ),
    "position looked up": lambda x, i, j: (x[j[0][i[0] % 3]], x[j][i % 2, j[:, :2] % 3]),
    "reduced": lambda x, i, j: (x[i].sum((0, 2)), x.gather(1, j).amax(0), x[j].softmax(-1), x[:, j].sum(0)),
    "stored too": lambda x, i, j: ((y := x * 2), y[i], y[i] + y[i[:, :1]]),
}
EVEN_SLOWER = {"columns": {"aten.index_select"}, "index_select": {"aten.index_select"}}


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("layout", ["plain", "transposed"])
def test_lookup_as_eager(name: str, layout: str) -> None:
    x = TABLE if layout == "plain" else TABLE.t().contiguous().t()
    schedule = check(PROGRAMS[name], x, ROWS, COLUMNS)
    assert set(schedule.counts.fallbacks) <= EVEN_SLOWER.get(name, set())


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16, torch.int64, torch.uint8, torch.bool])
def test_lookup_dtypes(dtype: torch.dtype) -> None:
    x = (TABLE * 3).to(dtype)
    x[0, 0] = float("nan") if dtype.is_floating_point else 0
    schedule = check(lambda x, i, j: (x[i], x.gather(1, j), embedding(j, x), x.take(i)), x, ROWS, COLUMNS)
    assert not schedule.counts.fallbacks


@pytest.mark.parametrize("mode", ["fake", "symbolic"])
def test_lookup_with_dynamic_sizes(mode: str) -> None:
    check(lambda x, i, j: (x[i].exp(), x.gather(1, j), x[:, j].sum(1), x.take(i)), TABLE, ROWS, COLUMNS, mode=mode)


def test_compiled_lookups_as_eager() -> None:
    """All programs in one compile, by the C++ of this machine."""

    def every(x: torch.Tensor, i: torch.Tensor, j: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tuple(result for program in PROGRAMS.values() for result in program(x, i, j))

    for dynamic in (False, True):
        compiled = torch.compile(every, backend=assay, dynamic=dynamic)
        for number, (ours, theirs) in enumerate(
            zip(compiled(TABLE, ROWS, COLUMNS), every(TABLE, ROWS, COLUMNS), strict=True)
        ):
            assert_same(ours, theirs, f"result {number}")


def test_large_lookups_in_parallel_as_eager() -> None:
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(700, 300, generator=generator)
    rows, cells = (torch.randint(0, 300, shape, generator=generator) for shape in ((900,), (700, 300)))
    check_compiled(lambda x, r, c: (x[r], x.gather(1, c), x[r].sum(0), x[:, r].amax(1)), x, rows, cells)


def check_compiled(function: Callable[..., tuple[torch.Tensor, ...]], *args: torch.Tensor) -> None:
    for ours, theirs in zip(torch.compile(function, backend=assay)(*args), function(*args), strict=True):
        assert_same(ours, theirs, "result", rtol=1e-5, atol=1e-5)


# ---- positions out of range ------------------------------------------------------------------------------------------

OUT_OF_RANGE: dict[str, Callable[[torch.Tensor, torch.Tensor], Any]] = {
    "index": lambda x, i: (x[i],),
    "index in the second dimension": lambda x, i: (x[:, i] * 2,),
    "gather": lambda x, i: (x.gather(0, i[:, None]),),
    "index_select": lambda x, i: (x.index_select(0, i),),
    "take": lambda x, i: (x.take(i * 5),),
    "embedding": lambda x, i: (embedding(i, x),),
    "only part is read": lambda x, i: (x[i][:1].relu(),),
    "only part is read, apart": lambda x, i: ((x[i] + 1)[:1] @ x.t(),),
    "in a reduction": lambda x, i: (x[i].sum(),),
}


@pytest.mark.parametrize("name", OUT_OF_RANGE)
def test_position_out_of_range_raises_as_eager(name: str) -> None:
    function = OUT_OF_RANGE[name]
    right = torch.tensor([0, 3])
    for wrong in (torch.tensor([0, 66]), torch.tensor([1, -9]), torch.tensor([2, 2**40])):
        expected = error_of(function, TABLE, wrong)
        assert expected is not None
        run = executable(planned(traced(function, TABLE, right)))
        assert error_of(run, [TABLE, wrong]) is expected
        assert error_of(run, [TABLE, right]) is None


def test_compiled_position_out_of_range_raises_as_eager() -> None:
    """In every thread and loop of the C++ too; a call after the failed one is right again."""

    def every(x: torch.Tensor, i: torch.Tensor, which: int) -> Any:
        return list(OUT_OF_RANGE.values())[which](x, i)

    compiled = torch.compile(every, backend=assay)
    x, right = torch.randn(600, 600), torch.arange(600).flip(0)
    for which, name in enumerate(OUT_OF_RANGE):
        torch._dynamo.reset()
        wrong = right.clone()
        wrong[417] = 600
        if error_of(every, x, wrong, which) is None:  # a large enough tensor has an element 600 * 5
            wrong[417] = 2**40
        assert error_of(compiled, x, wrong, which) is error_of(every, x, wrong, which), name
        torch.testing.assert_close(compiled(x, right, which), every(x, right, which))


@pytest.mark.parametrize("shape", [(1, 0), (2, 0, 3)])
@pytest.mark.parametrize("lookup", [lambda x, i: x.index_select(0, i), lambda x, i: embedding(i, x.flatten(1))])
def test_position_out_of_range_among_nothing_raises_as_eager(
    lookup: Callable[[torch.Tensor, torch.Tensor], torch.Tensor], shape: tuple[int, ...]
) -> None:
    given = torch.empty(shape), torch.tensor([0, 9])
    with pytest.raises(RuntimeError, match="out of DATA bounds"):
        lookup(*given)
    with pytest.raises(RuntimeError, match="out of DATA bounds"):
        torch.compile(lookup, backend="assay")(*given)


@pytest.mark.parametrize("shape", [(0, 3), (3, 0)])
@pytest.mark.parametrize("dynamic", [False, True])
def test_empty_dimensions_as_eager(shape: tuple[int, int], dynamic: bool) -> None:
    compiled = torch.compile(lambda x, i: x[i], backend=assay, dynamic=dynamic)
    x, i = torch.randn(shape), torch.tensor([0, 2])
    assert error_of(compiled, x, i) is error_of(lambda x, i: x[i], x, i)
    assert error_of(compiled, x, i[:0]) is None


def test_a_gather_is_not_computed_twice_for_a_few_bytes() -> None:
    """A value that is looked up, used by two reductions in one kernel, is part of it; in two kernels it is stored."""
    program = traced(lambda x, i: (torch.mm(x[i], x.t()), x[i] * 2), TABLE, torch.tensor([0, 3]))
    schedule = planned(program)
    assert sum("index" in kernel.origins for kernel in schedule.kernels) == 1
