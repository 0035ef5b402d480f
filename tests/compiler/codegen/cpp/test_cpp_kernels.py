"""Kernels as a lowering makes them, hand-written, against eager: values, dtypes, edges, sizes."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch

from assay.compiler.codegen.cpp.kernel import emit_kernel
from assay.compiler.ir.loops.index import Index, Int, maximum, minimum
from assay.compiler.ir.loops.kernel import AsValue, Cast, Expr
from assay.compiler.ops.calls.drawn_numbers import word_at
from assay.compiler.runtime import philox
from tests import kernel_ir as ir
from tests.kernel_ir import F32, call, const, i, j, k, load, loops, n, r, reduce, s, store

GENERATOR = torch.Generator().manual_seed(3)


def randn(*shape: int, dtype: torch.dtype = F32) -> torch.Tensor:
    return torch.randn(shape, generator=GENERATOR).to(dtype)


def softmax(rows: int, columns: Index, count: int) -> ir.Run:
    """A row softmax; with `columns` a symbol, its size is an argument."""
    x = randn(rows, count)
    x[0, -1] = float("-inf") if count > 1 else 0.0
    here, there = load("x", i * columns + j), load("x", i * columns + k)
    shifted = call("sub", there, reduce("max", there, k=columns))
    total = reduce("sum", call("exp", shifted), k=columns)
    expr = call("div", call("exp", call("sub", here, reduce("max", there, k=columns))), total)
    symbols = {} if isinstance(columns, Int) else {"n": count}
    return ir.make_run(
        loops(i=rows, j=columns), [store("y", i * columns + j, expr)], {"x": x}, {"y": softmax64(x, 1)}, symbols
    )


def softmax64(x: torch.Tensor, dim: int) -> torch.Tensor:
    return x.double().softmax(dim).float()


def column_softmax(rows: int, columns: int) -> ir.Run:
    x = randn(rows, columns)
    here, there = load("x", i * columns + j), load("x", k * columns + j)
    top = reduce("max", there, k=rows)
    total = reduce("sum", call("exp", call("sub", there, top)), k=rows)
    expr = call("div", call("exp", call("sub", here, top)), total)
    return ir.make_run(loops(i=rows, j=columns), [store("y", i * columns + j, expr)], {"x": x}, {"y": softmax64(x, 0)})


def softmax_of_transposed(rows: int, columns: int) -> ir.Run:
    """Each row is a column of what is read: reduced in lanes, and stored a row at a time."""
    x = randn(columns, rows)
    here, there = load("x", j * rows + i), load("x", k * rows + i)
    top = reduce("max", there, k=columns)
    total = reduce("sum", call("exp", call("sub", there, top)), k=columns)
    expr = call("div", call("exp", call("sub", here, top)), total)
    expected = softmax64(x.t(), 1).contiguous()
    return ir.make_run(loops(i=rows, j=columns), [store("y", i * columns + j, expr)], {"x": x}, {"y": expected})


def layer_norm(rows: int, width: int, dtype: torch.dtype) -> ir.Run:
    x, w, b = randn(rows, width, dtype=dtype), randn(width), randn(width)
    y64, mean64, rstd64 = torch.native_layer_norm(x.double(), [width], w.double(), b.double(), 1e-5)

    def wide(index: Index) -> Expr:
        raw = load("x", index, dtype)
        return raw if dtype == F32 else ir.widen(raw)

    mean = call("div", reduce("sum", wide(i * width + k), k=width), const(width))
    offset = call("sub", wide(i * width + k), mean)
    variance = call("div", reduce("sum", call("mul", offset, offset), k=width), const(width))
    rstd = call("rsqrt", call("add", variance, const(1e-5)))
    scaled = call("mul", call("mul", call("sub", wide(i * width + j), mean), rstd), load("w", j))
    stores = [
        store("y", i * width + j, call("add", scaled, load("b", j))),
        store("mean", i, mean),
        store("rstd", i, rstd),
    ]
    expected = {"y": y64.float(), "mean": mean64.flatten().float(), "rstd": rstd64.flatten().float()}
    return ir.make_run(loops(i=rows, j=width), stores, {"x": x, "w": w, "b": b}, expected)


def gelu_mul_add(shape: tuple[int, int], dtype: torch.dtype) -> ir.Run:
    rows, width = shape
    x, z, b = randn(*shape, dtype=dtype), randn(*shape, dtype=dtype), randn(width)
    at = i * width + j
    half = ir.widen(load("x", at, dtype))
    gelu = call(
        "mul", call("mul", half, const(0.5)), call("add", const(1), call("erf", call("mul", half, const(0.5**0.5))))
    )
    value = call("add", call("mul", gelu, ir.widen(load("z", at, dtype))), load("b", j))
    expected = torch.nn.functional.gelu(x.double()) * z.double() + b.double()
    return ir.make_run(
        loops(i=rows, j=width),
        [store("y", at, ir.Cast(value, dtype))],
        {"x": x, "z": z, "b": b},
        {"y": expected.to(dtype)},
    )


SHAPE = (5, 37, 70)


def reduction(op: str, dims: tuple[int, ...], shape: tuple[int, int, int] = SHAPE) -> ir.Run:
    """`op` of a three-dimensional tensor over `dims`, NaN in one place for max and min."""
    x = randn(*shape).double() if op == "prod" else randn(*shape)
    if op == "prod":
        x = (1 + x / 50).float()
    if op in ("max", "min", "argmax", "argmin") and x.numel():
        x[shape[0] // 2, shape[1] // 2, shape[2] // 2] = float("nan")
    if op in ("any", "all"):
        x = (x > 2) if op == "any" else (x > -2)
    names, kept = "ijk", [d for d in range(3) if d not in dims]
    strides = (shape[1] * shape[2], shape[2], 1)
    index = i * strides[0] + j * strides[1] + k * strides[2]
    dtype = torch.int64 if op.startswith("arg") else x.dtype
    expr = reduce(op, load("x", index, x.dtype), dtype, **{names[d]: shape[d] for d in dims})
    out: Index = Int(0)
    for d in kept:
        out = out * shape[d] + ir.Symbol(names[d])
    return ir.make_run(
        loops(**{names[d]: shape[d] for d in kept}), [store("y", out, expr)], {"x": x}, {"y": eager_of(op, x, dims)}
    )


def eager_of(op: str, x: torch.Tensor, dims: tuple[int, ...]) -> torch.Tensor:
    kept = [d for d in range(3) if d not in dims]
    flat = x.permute(*kept, *dims).reshape(*(x.shape[d] for d in kept), math.prod(x.shape[d] for d in dims))
    if op in ("sum", "prod"):
        return getattr(flat.double(), op)(-1).float()
    return {"max": torch.amax, "min": torch.amin}.get(op, getattr(torch, op))(flat, -1)


def padded() -> ir.Run:
    """A constant pad: a clamped load in the arm of a where."""
    x = randn(3, 50)
    at = j - 4
    inside = call("logical_and", call("ge", index_value(at), const(0, torch.int64), dtype=torch.bool),
                  call("lt", index_value(at), const(50, torch.int64), dtype=torch.bool))  # fmt: skip
    value = call("where", inside, load("x", i * 50 + maximum(minimum(at, Int(49)), Int(0))), const(-1.0))
    expected = torch.nn.functional.pad(x, (4, 7), value=-1.0)
    return ir.make_run(loops(i=3, j=61), [store("y", i * 61 + j, value)], {"x": x}, {"y": expected})


def index_value(index: Index) -> Expr:
    return AsValue(index, torch.int64)


def transposed_add(rows: int, columns: int) -> ir.Run:
    x, z = randn(rows, columns), randn(columns, rows)
    value = call("add", load("x", i * columns + j), load("z", j * rows + i))
    return ir.make_run(
        loops(i=rows, j=columns), [store("y", i * columns + j, value)], {"x": x, "z": z}, {"y": x + z.t()}
    )


def heads(batch: int, length: int, count: int, width: int) -> ir.Run:
    """A permute and reshape written as one index with // and %: [b, s, h*d] from [b, h, s, d]."""
    x = randn(batch, count, length, width)
    index = i * (count * length * width) + (k // width) * (length * width) + j * width + k % width
    out = i * (length * count * width) + j * (count * width) + k
    expected = x.transpose(1, 2).reshape(batch, length, count * width)
    return ir.make_run(
        loops(i=batch, j=length, k=count * width),
        [store("y", out, call("neg", load("x", index)))],
        {"x": x},
        {"y": -expected},
    )


def mixed_dtypes() -> ir.Run:
    x, flag = torch.arange(-50, 50, dtype=torch.int32), torch.arange(100) % 3 == 0
    picked = call(
        "where",
        load("flag", i, torch.bool),
        ir.Cast(load("x", i, torch.int32), torch.float64),
        const(0.5, torch.float64),
    )
    expected = torch.where(flag, x.double(), 0.5)
    stores = [
        store("y", i, picked),
        store("big", i, call("gt", load("x", i, torch.int32), const(3, torch.int32), dtype=torch.bool)),
    ]
    return ir.make_run(loops(i=100), stores, {"x": x, "flag": flag}, {"y": expected, "big": x > 3})


def symbolic_broadcast(rows: int, columns: int) -> ir.Run:
    x, b = randn(rows, columns), randn(columns)
    value = call("add", load("x", i * n + j), load("b", j))
    return ir.make_run(
        loops(i=s, j=n), [store("y", i * n + j, value)], {"x": x, "b": b}, {"y": x + b}, {"s": rows, "n": columns}
    )


def symbolic_total(rows: int, columns: int) -> ir.Run:
    x = randn(rows, columns)
    expr = reduce("sum", load("x", k * n + r), k=s, r=n)
    return ir.make_run((), [store("y", 0, expr)], {"x": x}, {"y": x.double().sum().float()}, {"s": rows, "n": columns})


def symbolic_columns(rows: int, columns: int) -> ir.Run:
    x = randn(rows, columns)
    expr = reduce("sum", load("x", k * n + j), k=s)
    return ir.make_run(
        loops(j=n), [store("y", j, expr)], {"x": x}, {"y": x.double().sum(0).float()}, {"s": rows, "n": columns}
    )


def two_accumulates() -> ir.Run:
    """y += x elementwise, and t[i] += x[i, j], where one place takes many values."""
    x, y, t = randn(4, 300), randn(4, 300), randn(4)
    stores = [
        ir.accumulate("y", i * 300 + j, load("x", i * 300 + j)),
        ir.accumulate("t", i, call("mul", load("x", i * 300 + j), const(1))),
    ]
    expected = {"y": y + x, "t": (t.double() + x.double().sum(1)).float()}
    return ir.make_run(loops(i=4, j=300), stores, {"x": x, "y": y, "t": t}, expected)


def two_shapes() -> ir.Run:
    """Stores over i and over j that share no order of loops."""
    x = randn(30, 40)
    by_row = reduce("sum", load("x", i * 40 + k), k=40)
    by_column = reduce("sum", load("x", k * 40 + j), k=30)
    expected = {"a": x.double().sum(1).float(), "b": x.double().sum(0).float(), "c": x * 2}
    stores = [
        store("a", i, by_row),
        store("b", j, by_column),
        store("c", i * 40 + j, call("mul", load("x", i * 40 + j), const(2))),
    ]
    return ir.make_run(loops(i=30, j=40), stores, {"x": x}, expected)


def whole_then_each(count: int) -> ir.Run:
    """A global norm and the values divided by it: a reduction over everything feeds a loop."""
    x = randn(count)
    norm = call("sqrt", reduce("sum", call("mul", load("x", k), load("x", k)), k=count))
    expected = x.double() / x.double().norm()
    stores = [store("y", i, call("div", load("x", i), norm)), store("norm", 0, norm)]
    return ir.make_run(loops(i=count), stores, {"x": x}, {"y": expected.float(), "norm": x.double().norm().float()})


def named_like_keywords() -> ir.Run:
    x = randn(10)
    stores = [store("float", ir.Symbol("int"), call("neg", load("t0", ir.Symbol("int"))))]
    return ir.make_run((ir.Loop("int", Int(10)),), stores, {"t0": x}, {"float": -x})


OPS = ("sum", "prod", "max", "min", "any", "all", "argmax", "argmin")
DIMS = ((0,), (1,), (2,), (0, 1), (1, 2), (0, 2), (0, 1, 2))


def mask_of_dropout(rows: int, columns: int, threads: int, width: int) -> ir.Run:
    """The words and the mask of a launch that no row begins with; a sum over each row of what it keeps."""
    own = torch.Generator().manual_seed(rows)
    key, x = torch.tensor([-(5 << 40) - 9, (1 << 33) + 2]), torch.randn(rows, columns, generator=own)
    seed, start = (load("key", at, torch.int64) for at in (0, 1))
    word = word_at(seed, start, i * columns + j, threads, width)
    kept = call("le", word, const(1 << 29, torch.int32))
    along = word_at(seed, start, i * columns + k, threads, width)
    there = call("le", along, const(1 << 29, torch.int32))
    chosen = call("where", there, load("x", i * columns + k), const(0), dtype=F32)
    places = philox.place_of(torch.arange(rows * columns), threads, width)
    words = philox.words(key[0], key[1] + places[0], *places[1:]).view(rows, columns)
    expected = {"word": words, "mask": words <= 1 << 29, "total": (x.double() * (words <= 1 << 29)).sum(1).float()}
    stores = [store("word", i * columns + j, word), store("mask", i * columns + j, kept)]
    stores.append(store("total", i, reduce("sum", chosen, k=columns)))
    return ir.make_run(loops(i=rows, j=columns), stores, {"key": key, "x": x}, expected)


def distant_words(first: int) -> ir.Run:
    """Words of elements that a launch comes to in a later turn."""
    key, count = torch.tensor([(9 << 40) + 1, 7]), 200
    seed, start = (load("key", at, torch.int64) for at in (0, 1))
    word = word_at(seed, start, i + first, philox.THREADS, philox.LANES)
    places = philox.place_of(torch.arange(count) + first, philox.THREADS, philox.LANES)
    expected = philox.words(key[0], key[1] + places[0], *places[1:])
    return ir.make_run(loops(i=count), [store("word", i, word)], {"key": key}, {"word": expected})


def dropped_halves(rows: int, columns: int, threads: int, width: int) -> ir.Run:
    """A product with a mask whose result is stored in bfloat16, which a thread has eight of in a row."""
    own = torch.Generator().manual_seed(columns)
    key, x = torch.tensor([77, 5]), torch.randn(rows, columns, generator=own).to(torch.bfloat16)
    seed, start = (load("key", at, torch.int64) for at in (0, 1))
    kept = call("le", word_at(seed, start, i * columns + j, threads, width), const(-5, torch.int32))
    value = call("mul", ir.widen(load("x", i * columns + j, torch.bfloat16)), Cast(kept, F32))
    places = philox.place_of(torch.arange(rows * columns), threads, width)
    words = philox.words(key[0], key[1] + places[0], *places[1:]).view(rows, columns)
    stores = [store("y", i * columns + j, Cast(value, torch.bfloat16))]
    return ir.make_run(loops(i=rows, j=columns), stores, {"key": key, "x": x}, {"y": x * (words <= -5)})


RUNS: dict[str, ir.Run] = {
    "dropped halves": dropped_halves(6, 64, 9, 8),
    "dropped halves, rows of fours": dropped_halves(6, 36, 9, 4),
    "dropped halves, wide": dropped_halves(3, 1024, 100, 4),
    "mask of dropout, 16 at a time": mask_of_dropout(7, 96, 13, 16),
    "words in blocks": mask_of_dropout(4, 128, philox.THREADS, philox.LANES),
    "words in blocks, rows that begin within a call": mask_of_dropout(9, 131, philox.THREADS, philox.LANES),
    "mask of dropout, 8 at a time": mask_of_dropout(40, 64, 32, 8),
    "mask of dropout, 4 at a time": mask_of_dropout(6, 44, 20, 4),
    "mask of dropout, rows not of fours": mask_of_dropout(4, 30, 9, 4),
    "mask of dropout, 2 at a time": mask_of_dropout(5, 66, 10, 2),
    "mask of dropout, 1 at a time": mask_of_dropout(5, 67, 12, 1),
    **{f"{op} over {dims}": reduction(op, dims) for op in OPS for dims in DIMS},
    **{
        f"long {op} over {dims}": reduction(op, dims, (3, 1000, 700))
        for op in ("sum", "max", "argmax")
        for dims in DIMS
    },
    **{f"sum of one over {dims}": reduction("sum", dims, (1, 9, 1)) for dims in DIMS},
    **{f"sum of none over {dims}": reduction("sum", dims, (4, 0, 3)) for dims in DIMS},
    "softmax": softmax(33, Int(130), 130),
    "softmax, large": softmax(64, Int(3001), 3001),
    "softmax, symbolic": softmax(33, n, 131),
    "softmax of one": softmax(7, Int(1), 1),
    "softmax over columns": column_softmax(40, 300),
    "softmax over columns, square": column_softmax(64, 64),
    "layer norm": layer_norm(20, 768, F32),
    "layer norm, bfloat16": layer_norm(20, 96, torch.bfloat16),
    "gelu, bfloat16": gelu_mul_add((30, 500), torch.bfloat16),
    "gelu, float16": gelu_mul_add((30, 500), torch.float16),
    "padded": padded(),
    "transposed": transposed_add(70, 90),
    "transposed, large": transposed_add(513, 300),
    "softmax of transposed": softmax_of_transposed(256, 512),
    "softmax of transposed, odd sizes": softmax_of_transposed(301, 205),
    "softmax of transposed, small": softmax_of_transposed(70, 9),
    "heads": heads(2, 30, 4, 16),
    "heads, narrow": heads(2, 30, 4, 3),
    "mixed dtypes": mixed_dtypes(),
    "symbolic broadcast": symbolic_broadcast(70, 1100),
    "symbolic broadcast of one row": symbolic_broadcast(1, 3),
    "symbolic broadcast of none": symbolic_broadcast(0, 3),
    "symbolic total": symbolic_total(300, 511),
    "symbolic columns": symbolic_columns(300, 511),
    "symbolic columns, few": symbolic_columns(2, 3),
    "accumulate": two_accumulates(),
    "stores of two shapes": two_shapes(),
    "whole then each": whole_then_each(200_000),
    "whole then each, small": whole_then_each(10),
    "named like keywords": named_like_keywords(),
}

BOUNDS = {torch.float32: 4e-6, torch.bfloat16: 2**-8, torch.float16: 2**-11, torch.float64: 1e-14}
"""Relative to the largest value of the result: what rounding every step of these short chains can give."""


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, torch.Tensor]]:
    folder: Path = tmp_path_factory.mktemp("cache")
    functions = ir.load_runs(list(RUNS.values()), folder)
    return {name: ir.launch(functions[run.kernel.name], run) for name, run in RUNS.items()}


@pytest.mark.parametrize("name", RUNS)
def test_emit_kernel_equals_eager(name: str, results: dict[str, dict[str, torch.Tensor]]) -> None:
    for buffer, expected in RUNS[name].expected.items():
        got = results[name][buffer]
        assert got.dtype == expected.dtype and got.shape == expected.shape
        bound = BOUNDS.get(got.dtype, 0.0)
        largest = expected.double().abs().nan_to_num(0, 0, 0).max().item() if expected.numel() else 0.0
        torch.testing.assert_close(
            got,
            expected,
            rtol=0,
            atol=bound * largest,
            equal_nan=True,
            msg=lambda m: f"{m}\n{emit_kernel(RUNS[name].kernel)}",
        )


@pytest.mark.parametrize("threads", [1, 2])
def test_emit_result_does_not_depend_on_threads(threads: int, tmp_path: Path, results: dict) -> None:
    name = "symbolic total"
    before = torch.get_num_threads()
    function = ir.load_runs([RUNS[name]], tmp_path)[RUNS[name].kernel.name]
    torch.set_num_threads(threads)
    try:
        assert torch.equal(ir.launch(function, RUNS[name])["y"], results[name]["y"])
    finally:
        torch.set_num_threads(before)


def test_emit_long_sums_err_at_most_as_eager(tmp_path: Path) -> None:
    """Over rows, columns and everything: sums of numbers of one sign, where rounding only adds up."""
    x = torch.rand(4096, 2048, generator=GENERATOR)
    count, width = x.shape
    runs = [
        ir.make_run(
            loops(i=count), [store("y", i, reduce("sum", load("x", i * width + k), k=width))], {"x": x}, {"y": x.sum(1)}
        ),
        ir.make_run(
            loops(j=width), [store("y", j, reduce("sum", load("x", k * width + j), k=count))], {"x": x}, {"y": x.sum(0)}
        ),
        ir.make_run((), [store("y", 0, reduce("sum", load("x", k), k=count * width))], {"x": x}, {"y": x.sum()}),
    ]
    functions = ir.load_runs(runs, tmp_path)
    for run, exact in zip(runs, (x.double().sum(1), x.double().sum(0), x.double().sum()), strict=True):
        ours = (ir.launch(functions[run.kernel.name], run)["y"].double() - exact).abs().max().item()
        eager = (run.expected["y"].double() - exact).abs().max().item()
        last_place = float(exact.max()) * 2**-24
        assert ours <= max(eager, last_place)


@pytest.mark.parametrize("width", [127, 128, 191, 2048 + 130])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_emit_takes_every_element_of_a_row(width: int, dtype: torch.dtype, tmp_path: Path) -> None:
    """Row i differs from the others at place i alone, by the number that decides the sum, the maximum or the NaN.

    So each place shows: those that run abreast, those that are left of a row, and where they meet.
    """
    ones, nans = torch.zeros(width, width, dtype=dtype), torch.zeros(width, width, dtype=dtype)
    ones.diagonal().fill_(3.0)
    nans.diagonal().fill_(math.nan)
    x = load("x", i * width + k, dtype)
    wanted = {"sum": (ones, ones.sum(1)), "max": (ones, ones.amax(1)), "min": (nans, nans.amin(1))}
    runs = [
        ir.make_run(loops(i=width), [store("y", i, reduce(op, x, k=width))], {"x": given}, {"y": expected})
        for op, (given, expected) in wanted.items()
    ]
    functions = ir.load_runs(runs, tmp_path)
    for run in runs:
        got = ir.launch(functions[run.kernel.name], run)["y"]
        torch.testing.assert_close(got, run.expected["y"], rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("width", [40, 64, 100])
def test_emit_sums_floats_beside_bytes_in_several_lanes(width: int, tmp_path: Path) -> None:
    """A sum in sequence is twice as far off. GCC makes one of a row that reads a mask, where it chooses the lanes."""
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(512, width, generator=generator) / 2 + 0.5
    mask = torch.rand(512, width, generator=generator) > 0.1
    at = i * width + k
    taken = call("where", load("m", at, torch.bool), load("x", at), const(0.0), dtype=F32)
    exact = (x.double() * mask).sum(1)
    run = ir.make_run(
        loops(i=512), [store("y", i, reduce("sum", taken, k=width))], {"x": x, "m": mask}, {"y": exact.float()}
    )
    got = ir.launch(ir.load_runs([run], tmp_path)[run.kernel.name], run)["y"]
    in_sequence = torch.zeros(512)
    for column in range(width):
        in_sequence += x[:, column] * mask[:, column]
    errors = [(sums.double() - exact).square().mean() for sums in (got, in_sequence)]
    assert errors[0] < errors[1] / 2


def test_emit_maximum_of_nothing_is_the_identity(tmp_path: Path) -> None:
    run = ir.make_run(
        (), [store("y", 0, reduce("max", load("x", k), k=0))], {"x": torch.zeros(0)}, {"y": torch.tensor(-math.inf)}
    )
    function = ir.load_runs([run], tmp_path)[run.kernel.name]
    assert torch.equal(ir.launch(function, run)["y"], run.expected["y"])


def test_emit_computes_costly_values_of_a_row_once() -> None:
    text = emit_kernel(RUNS["softmax"].kernel)
    assert text.count("m::exp") == 1 and text.count("reduction(+:") == 1


def test_emit_merges_reductions_over_equal_extents() -> None:
    x = load("x", i * 64 + k)
    stores = [store("a", i, reduce("sum", x, k=64)), store("b", i, reduce("max", load("x", i * 64 + r), r=64))]
    buffers = [ir.buffer("x", torch.zeros(4 * 64)), ir.buffer("a", torch.zeros(4)), ir.buffer("b", torch.zeros(4))]
    text = emit_kernel(ir.kernel(loops(i=4), stores, buffers))
    assert text.count("for (") == 2 and text.count("x[") == 1


def test_emit_keeps_division_out_of_the_inner_loop() -> None:
    text = emit_kernel(RUNS["heads"].kernel)
    assert "/" not in text.split("{", 1)[1] and "%" not in text


def test_emit_joins_loops_that_every_access_walks_as_one() -> None:
    at = i * 700 + j * 7 + k
    buffers = [ir.buffer("x", torch.zeros(2100)), ir.buffer("y", torch.zeros(2100))]
    text = emit_kernel(ir.kernel(loops(i=3, j=100, k=7), [store("y", at, call("neg", load("x", at)))], buffers))
    assert text.count("for (") == 1


def test_cpp_words_in_blocks_of_a_later_turn(tmp_path: Path) -> None:
    run = distant_words((1 << 32) - 77)
    assert "m::philox_block" in emit_kernel(run.kernel)
    found = ir.launch(ir.load_runs([run], tmp_path)[run.kernel.name], run)
    assert torch.equal(found["word"], run.expected["word"])
