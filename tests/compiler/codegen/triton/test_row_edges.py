"""Rows that begin or end off 16 bytes: read 16 bytes at a time in the machine code, and as eager where it is run.

Their values are held to eager with those of the other programs, in `test_triton_programs`.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

from assay.compiler.codegen.triton.programs import emit_programs
from assay.compiler.codegen.triton.row_edges import Access, Edge, edge_of
from assay.compiler.codegen.triton.tile_sizes import pieces_of
from assay.compiler.ir.loops.index import Index, Int, as_index
from assay.compiler.ir.loops.kernel import Cast, Loop
from assay.compiler.toolchain.gpu.triton_launch import compiled, module_of
from tests import kernel_ir as ir
from tests.kernel_ir import F32, call, i, j, k, load, loops, n, reduce, store

pytest.importorskip("triton")
BF16 = torch.bfloat16


def softmax_of_halves(rows: int, columns: int, apart: int) -> ir.Run:
    """Rows that begin `apart` elements from each other; the first begins at NaN, which belongs to none before it."""
    x = torch.randn(rows, apart, generator=torch.Generator().manual_seed(columns)).to(BF16)
    x[:, columns:] = float("nan")
    here, there = (ir.widen(load("x", i * apart + var, BF16)) for var in (j, k))
    peak = reduce("max", there, k=columns)
    total = reduce("sum", call("exp", call("sub", there, peak)), k=columns)
    share = Cast(call("div", call("exp", call("sub", here, peak)), total), BF16)
    expected = {"y": x[:, :columns].double().softmax(1).to(BF16)}
    return ir.make_run(loops(i=rows, j=columns), [store("y", i * columns + j, share)], {"x": x}, expected)


def biased(rows: int, columns: int, dtype: torch.dtype) -> ir.Run:
    generator = torch.Generator().manual_seed(rows)
    x, b = (
        torch.randn(rows, columns, generator=generator).to(dtype),
        torch.randn(columns, generator=generator).to(dtype),
    )
    total = call("add", load("x", i * columns + j, dtype), load("b", j, dtype))
    stores = [store("y", i * columns + j, total)]
    return ir.make_run(loops(i=rows, j=columns), stores, {"x": x, "b": b}, {"y": x + b})


def centred(rows: int, columns: int, apart: int) -> ir.Run:
    """Rows less their greatest element, in float32, beside a copy: most is written, in other rows than those read."""
    x = torch.randn(rows, apart, generator=torch.Generator().manual_seed(rows)).to(BF16)
    there, here = (load("x", i * apart + var, BF16) for var in (k, j))
    peak = reduce("max", ir.widen(there), k=columns)
    stores = [store("y", i * columns + j, call("sub", ir.widen(here), peak)), store("z", i * columns + j, here)]
    kept = x[:, :columns].contiguous()
    expected = {"y": kept.float() - kept.float().amax(1, True), "z": kept}
    return ir.make_run(loops(i=rows, j=columns), stores, {"x": x}, expected)


def doubled(count: int, symbol: str = "") -> ir.Run:
    x = torch.arange(count).to(torch.int16)
    extent: Index = ir.Symbol(symbol) if symbol else as_index(count)
    value = call("add", load("x", i, torch.int16), load("x", i, torch.int16))
    return ir.make_run(
        loops(i=extent), [store("y", i, value)], {"x": x}, {"y": x * 2}, {symbol: count} if symbol else {}
    )


EDGES = {
    "halves in rows of 197": softmax_of_halves(9, 197, 197),
    "halves in rows of 257 of 264": softmax_of_halves(9, 257, 264),
    "halves in rows of 2047, two tiles": softmax_of_halves(3, 2047, 2047),
    "halves in rows of 1539 of 1541": softmax_of_halves(3, 1539, 1541),
    "halves of 16,390 of 16,392, walked": centred(2, 16390, 16392),
    "biased rows of 301": biased(30, 301, F32),
    "biased rows of 301 halves": biased(7, 301, BF16),
    "elements, 4099": doubled(4099),
    "elements, symbol of 4099": doubled(4099, "n"),
    "elements, symbol of 3": doubled(3, "n"),
    "elements, symbol of none": doubled(0, "n"),
}
READ_AT_ONCE = {name: run for name, run in EDGES.items() if "1541" not in name and "16,392" not in name}


@pytest.mark.parametrize("is_wide", [False, True])
@pytest.mark.parametrize("name", READ_AT_ONCE)
def test_rows_off_16_bytes_are_read_16_bytes_at_a_time(name: str, is_wide: bool, tmp_path: Path) -> None:
    run = EDGES[name]
    (program,) = emit_programs(run.kernel, is_wide)
    assert wide_reads(run, is_wide, True, tmp_path)
    assert "outer_" in program.text or "of 264" in name, "what is left at the ends of rows is stored apart"


def test_rows_off_16_bytes_are_written_16_bytes_at_a_time_where_most_is_written(tmp_path: Path) -> None:
    run = centred(300, 16390, 16392)
    (program,) = emit_programs(run.kernel)
    assert (
        program.text.count("for y0 in") == 2 and program.text.count("outer_0") == 2 * 2
    )  # made and used, of two widths
    code = compiled(run.kernel, program, module_of((program,), str(tmp_path)), False, True)
    assert re.findall(r"st\.global[\w.]*\.v4\.b32", code.asm["ptx"])


@pytest.mark.parametrize("name", READ_AT_ONCE)
def test_addresses_off_16_bytes_are_read_within_their_bounds(name: str, tmp_path: Path) -> None:
    run = EDGES[name]
    (program,) = emit_programs(run.kernel, is_aligned=False)
    assert "near_" not in program.text and not wide_reads(run, False, False, tmp_path)


def wide_reads(run: ir.Run, is_wide: bool, is_aligned: bool, folder: Path) -> list[str]:
    """The instructions of machine code that read four words of 32 bits."""
    (program,) = emit_programs(run.kernel, is_wide, is_aligned=is_aligned)
    code = compiled(run.kernel, program, module_of((program,), str(folder)), is_wide, is_aligned)
    return re.findall(r"ld\.global[\w.]*\.v4\.b32", code.asm["ptx"])


@pytest.mark.parametrize(
    ("length", "apart", "dtype", "expected"),
    [
        (8192, 8192, BF16, None),
        (8192, 8191, F32, (4, True)),
        (50257, 50264, BF16, (8, False)),
        (50257, 50257, BF16, (8, True)),
        (301, 304, torch.float64, (2, False)),
        (301, 304, torch.bool, (8, False)),
        (100, 101, BF16, None),
    ],
)
def test_edge_of_rows(length: int, apart: int, dtype: torch.dtype, expected: tuple[int, bool] | None) -> None:
    loop, extents = Loop("j", Int(length)), {"i": Int(10), "j": Int(length)}
    edge = edge_of(loop, [Access(i * apart + j, dtype)], {"i"}, extents)
    assert (edge and (edge.width, edge.is_led)) == expected


def test_edge_goes_by_the_rows_that_most_memory_is_in() -> None:
    loop, extents = Loop("j", Int(301)), {"i": Int(10), "j": Int(301)}
    once, halves, singles = Access(j, F32), Access(i * 303 + j, BF16), Access(i * 301 + j, F32)
    edge = edge_of(loop, [once, halves, singles], {"i"}, extents)
    assert edge == Edge(loop, i * 301, 4, True)
    assert edge.takes(singles) and not edge.takes(halves) and not edge.takes(once)


def test_edge_of_rows_at_places_that_data_gives() -> None:
    """Where they begin is not known before the row is."""
    loop, extents = Loop("j", Int(301)), {"i": Int(10), "j": Int(301), "g_0": Int(50)}
    assert edge_of(loop, [Access(ir.Symbol("g_0") * 301 + j, F32)], {"i"}, extents) is None


def test_edge_of_symbolic_rows_is_found_at_each_call() -> None:
    loop, extents = Loop("j", n), {"i": Int(10), "j": n}
    assert edge_of(loop, [Access(i * n + j, F32)], {"i"}, extents) == Edge(loop, i * n, 4, True)


@pytest.mark.parametrize(("lanes", "pieces"), [(8192, [8192]), (8198, [8192, 8]), (768, [1024]), (1030, [1024, 8])])
def test_pieces_of_whole_rows(lanes: int, pieces: list[int]) -> None:
    assert pieces_of(lanes) == pieces
    assert pieces_of(lanes, is_one=True) == [1 << (lanes - 1).bit_length()]
