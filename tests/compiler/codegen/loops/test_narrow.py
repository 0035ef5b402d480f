"""What generated code computes in 32 bits is proven to fit: against every value, just below the limit and at it."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping
from pathlib import Path

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from assay.compiler.codegen.cpp.kernel import emit_kernel
from assay.compiler.codegen.loops import affine
from assay.compiler.codegen.loops.narrow import Narrower
from assay.compiler.codegen.loops.renamer import Variables, operands, subexpressions
from assay.compiler.ir.loops.index import FloorDiv, Index, Int, Mod, Symbol, evaluate, floordiv, maximum, minimum, mod
from assay.compiler.ir.loops.kernel import AsValue, Call, Cast, Const, Expr
from tests import kernel_ir as ir
from tests.kernel_ir import call, i, j, load, loops, reduce, store

I32, I64, BOOL = torch.int32, torch.int64, torch.bool
LIMIT = 2**31
EXTENTS: dict[str, Index] = {"i": Int(3), "j": Int(4)}
POINTS = [{"i": a, "j": b} for a, b in itertools.product(range(3), range(4))]

# Coefficients such that about half of all indices cross the limit.
numbers = st.one_of(
    st.integers(-9, 9), st.sampled_from([LIMIT - 1, LIMIT, LIMIT // 3, 1 - LIMIT, -LIMIT, 2**16, 2**40])
)
leaves = st.one_of(numbers.map(Int), st.sampled_from([i, j]))
indices = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.tuples(inner, inner).map(lambda p: p[0] + p[1]),
        st.tuples(inner, numbers).map(lambda p: p[0] * p[1]),
        st.tuples(inner, st.integers(1, 12)).map(lambda p: floordiv(p[0], Int(p[1]))),
        st.tuples(inner, st.one_of(st.integers(1, 12), st.just(LIMIT), st.just(2**40))).map(
            lambda p: mod(p[0], Int(p[1]))
        ),
        st.tuples(inner, inner).map(lambda p: minimum(*p)),
        st.tuples(inner, inner).map(lambda p: maximum(*p)),
    ),
    max_leaves=6,
)
values = st.recursive(
    st.one_of(indices.map(lambda at: AsValue(at, I64)), numbers.map(lambda value: Const(value, I64))),
    lambda inner: st.one_of(
        st.tuples(st.sampled_from("add sub mul maximum minimum".split()), inner, inner).map(
            lambda p: Call(p[0], p[1:], I64)
        ),
        st.tuples(st.sampled_from(["neg", "abs"]), inner).map(lambda p: Call(p[0], p[1:], I64)),
        st.tuples(st.sampled_from(["floordiv_int", "mod_int"]), inner, st.integers(1, 99)).map(
            lambda p: Call(p[0], (p[1], Const(p[2], I64)), I64)
        ),
        st.tuples(inner, inner, inner).map(
            lambda p: Call("where", (Call("lt", p[:2], BOOL), p[2], p[0]), I64)
        ),
    ),
    max_leaves=5,
)  # fmt: skip

_OPERATORS = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "maximum": max,
    "minimum": min,
    "neg": lambda a: -a,
    "abs": abs,
    "floordiv_int": lambda a, b: a // b,
    "mod_int": lambda a, b: a % b,
    "where": lambda c, a, b: a if c else b,
    "lt": lambda a, b: a < b,
}


def computed(expr: Expr, point: Mapping[str, int]) -> int:
    """The value over numbers that have no limit; an index in 32 bits is converted, not computed, in them."""
    if isinstance(expr, Const):
        return int(expr.value)
    if isinstance(expr, AsValue):
        return evaluate(expr.index, point)
    assert isinstance(expr, Call)
    return int(_OPERATORS[expr.op](*(computed(arg, point) for arg in expr.args)))


def is_in_range(value: int) -> bool:
    return -LIMIT <= value < LIMIT


@settings(max_examples=200, deadline=None)
@given(indices)
def test_interval_holds_every_value(index: Index) -> None:
    low, high = affine.interval(index, EXTENTS)
    found = [evaluate(index, point) for point in POINTS]
    assert low == -affine.UNBOUNDED or low <= min(found)
    assert high == affine.UNBOUNDED or max(found) <= high


@settings(max_examples=200, deadline=None)
@given(values)
def test_narrow_values_and_all_on_the_way_fit(value: Expr) -> None:
    variables = Variables()
    narrow = Narrower(variables, EXTENTS)(Cast(value, torch.float64))
    assert isinstance(narrow, Cast)
    for point in POINTS:
        assert computed(narrow.expr, point) == computed(value, point)
        for part in subexpressions([narrow]):
            assert part.dtype is not I32 or is_in_range(computed(part, point)), (part, point)
    if narrow.expr.dtype is I64:  # nothing is lost: something on the way has no proof
        assert narrow.expr == value or any(part.dtype is BOOL for part in subexpressions([value]))


@settings(max_examples=200, deadline=None)
@given(indices, st.sampled_from([3, 40, LIMIT - 1, LIMIT, 2**33]), st.booleans())
def test_divisions_of_32_bits_fit(index: Index, divisor: int, is_quotient: bool) -> None:
    division = (FloorDiv if is_quotient else Mod)(index, Int(divisor))
    assume("u32" in affine.text(division, EXTENTS))
    for part in affine.walk(division):
        if not isinstance(part, FloorDiv | Mod):
            continue
        if affine.text(part, EXTENTS).startswith("(i64)((u32)"):
            for point in POINTS:
                assert all(0 <= evaluate(operand, point) < LIMIT for operand in (part.a, part.b)), (part, point)


@pytest.mark.parametrize("beyond", [0, 1])
@pytest.mark.parametrize("sign", [1, -1])
def test_the_limit_is_the_last_number_of_32_bits(beyond: int, sign: int) -> None:
    """The greatest number is 2**31 - 1, the least -2**31: one more, or one less, has 64 bits."""
    last = LIMIT - 1 if sign == 1 else -LIMIT
    value = AsValue(Symbol("i") * sign + (last - 2 * sign + beyond * sign), I64)
    narrow = Narrower(Variables(), EXTENTS)(Cast(value, torch.float64))
    assert operands(narrow)[0].dtype is (I64 if beyond else I32)


@pytest.mark.parametrize("beyond", [0, 1])
def test_sums_that_come_back_below_the_limit_stay_in_64_bits(beyond: int) -> None:
    """`(i + c) - c` fits, but i + c on the way need not."""
    c = Const(LIMIT - 3 + beyond, I64)
    value = Call("sub", (Call("add", (AsValue(i, I64), c), I64), c), I64)
    narrow = Narrower(Variables(), EXTENTS)(Call("lt", (value, Const(7, I64)), BOOL))
    assert {arg.dtype for arg in operands(narrow)} == {I64 if beyond else I32}


def test_a_symbolic_size_proves_nothing() -> None:
    """A loop over a size that is a symbol may be long; one that is clamped may not."""
    narrow = Narrower(Variables(), {"i": Symbol("n")})
    assert operands(narrow(Cast(AsValue(i, I64), torch.float32)))[0].dtype is I64
    assert operands(narrow(Cast(AsValue(minimum(i, Int(99)), I64), torch.float32)))[0].dtype is I32


@pytest.mark.parametrize("rows", [2**15, 2**15 + 1])
def test_a_domain_beyond_the_limit_has_no_kernel_in_32_bits(rows: int) -> None:
    """An expanded tensor (every stride 0) has 2**31 elements, or a row more, without any memory for them."""
    columns = 2**16
    position = AsValue(i * columns + j, I64)
    mask = call("lt", position, load("n", 0, I64), dtype=BOOL)
    near = call("lt", position, ir.const(77, I64), dtype=BOOL)
    first = reduce("argmax", load("x", 0), I64, i=rows, j=columns)
    buffers = [ir.Buffer(name, dtype, Int(1)) for name, dtype in (("n", I64), ("x", ir.F32), ("y", I64), ("z", BOOL))]
    stores = [store("z", 0, reduce("any", near, i=rows, j=columns)), store("y", 0, first)]
    text = emit_kernel(ir.kernel((), stores, buffers))
    fits = rows * columns <= LIMIT
    assert ("(i32)(" in text) == fits, text
    assert ("reduction(minimum:" in text) and f"i{32 if fits else 64} part_acc8[" in text, text
    assert not re.search(r"for \(i32", text)  # loop variables have 64 bits always
    data = emit_kernel(ir.kernel((), [store("z", 0, reduce("any", mask, i=rows, j=columns))], buffers))
    assert "(i32)(" not in data  # what is data in 64 bits is compared in 64 bits


CROSSING = [LIMIT - 2, LIMIT - 1, LIMIT, -LIMIT, -LIMIT - 1, -LIMIT + 1]


def crossing(offset: int) -> ir.Run:
    """Numbers around the limit compared, converted, and their distance taken, each as a result."""
    at = AsValue(i + offset, I64)
    behind = call("sub", at, AsValue(j * 3, I64))
    results = {
        "is_less": call("lt", behind, ir.const(offset, I64), dtype=BOOL),
        "as_float": Cast(behind, torch.float64),
        "distance": Cast(call("abs", behind), torch.float64),
        "chosen": Cast(call("where", call("ge", at, behind, dtype=BOOL), at, behind), torch.int32),
    }
    whole = torch.arange(5)[:, None] + offset
    apart = whole - torch.arange(4) * 3
    expected = {
        "is_less": apart < offset,
        "as_float": apart.double(),
        "distance": apart.abs().double(),
        "chosen": torch.where(whole >= apart, whole, apart).int(),
    }
    stores = [store(name, i * 4 + j, expr) for name, expr in results.items()]
    return ir.make_run(loops(i=5, j=4), stores, {}, expected)


def test_kernels_around_the_limit_are_eagers(tmp_path: Path) -> None:
    runs = [crossing(offset) for offset in (*CROSSING, 0, -7)]
    assert "(i32)(" in emit_kernel(runs[-1].kernel)
    functions = ir.load_runs(runs, tmp_path)
    for run in runs:
        for name, found in ir.launch(functions[run.kernel.name], run).items():
            assert torch.equal(found, run.expected[name]), (name, found, run.expected[name])


def masks(rows: int, columns: int) -> list[torch.Tensor]:
    at, before = torch.arange(columns)[None, :], torch.arange(rows)[:, None]
    window = (at <= before) & (at > before - 5)
    buckets = (at - before).abs().clamp(max=7).float()
    return [window, torch.where(at <= before, 0.0, -1e9), buckets, ((at - before) // 3 % 5).to(torch.int16)]


def test_masks_and_positions_are_eagers() -> None:
    compiled = torch.compile(masks, backend="assay", options={"fallback": "error"})
    for found, expected in zip(compiled(9, 70), masks(9, 70), strict=True):
        assert found.dtype == expected.dtype and torch.equal(found, expected)
