"""Every operator and cast of the tables, on every dtype that has it, against eager on values that include the edges."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from pathlib import Path

import mpmath
import numpy as np
import pytest
import torch

from assay.compiler.codegen.cpp.expressions import C_TYPES, call, is_supported, table_of
from assay.compiler.codegen.loops.operators import HALVES
from assay.compiler.entry.dynamo import assay
from assay.compiler.errors import Unsupported
from assay.compiler.ir.loops.kernel import Call, Cast, Expr, Load
from tests import kernel_ir as ir

FLOATS = (torch.float32, torch.float64)
INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
ARITHMETIC = (*FLOATS, *INTEGERS, torch.bool)


def exactly(exact: Callable[[float], object], eager: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """A function to all digits, which eager's own loses in places; eager's at poles and where numbers are huge."""

    def one(value: float) -> float:
        known = float(eager(torch.tensor(value, dtype=torch.float64)))
        if abs(value) > 1e3 or not math.isfinite(known):
            return known
        try:
            with mpmath.workdps(80):
                return float(exact(value))  # type: ignore[arg-type]
        except (ValueError, ZeroDivisionError):
            return math.inf  # a pole, where eager has some large number

    def apply(x: torch.Tensor) -> torch.Tensor:
        if not x.dtype.is_floating_point:
            return eager(x)
        return torch.tensor([one(value) for value in x.tolist()], dtype=x.dtype)

    return apply


SPECIAL = {
    "gelu": exactly(lambda x: x * mpmath.ncdf(x), torch.nn.functional.gelu),
    "gelu_slope": exactly(
        lambda x: mpmath.ncdf(x) + x * mpmath.npdf(x),
        lambda x: torch.ops.aten.gelu_backward(torch.ones_like(x), x),
    ),
    "erfcx": exactly(lambda x: mpmath.exp(mpmath.mpf(x) ** 2) * mpmath.erfc(x), torch.special.erfcx),
    "erfinv": exactly(mpmath.erfinv, torch.erfinv),
    "ndtri": exactly(lambda p: mpmath.sqrt(2) * mpmath.erfinv(2 * mpmath.mpf(p) - 1), torch.special.ndtri),
    "i0": exactly(lambda x: mpmath.besseli(0, x), torch.i0),
    "i1": exactly(lambda x: mpmath.besseli(1, x), torch.special.i1),
    "i0e": exactly(lambda x: mpmath.besseli(0, x) * mpmath.exp(-abs(x)), torch.special.i0e),
    "i1e": exactly(lambda x: mpmath.besseli(1, x) * mpmath.exp(-abs(x)), torch.special.i1e),
    "lgamma": exactly(lambda x: mpmath.re(mpmath.loggamma(x)), torch.lgamma),
    "digamma": exactly(mpmath.digamma, torch.digamma),
    "trigamma": lambda x: torch.polygamma(1, x),  # eager's own: 5e-10 from the truth at worst, in float64 too
}


UNARY: dict[str, Callable[..., torch.Tensor]] = {
    "neg": torch.neg,
    "abs": torch.abs,
    "sign": torch.sign,
    "reciprocal": torch.reciprocal,
    "floor": torch.floor,
    "ceil": torch.ceil,
    "trunc": torch.trunc,
    "round": torch.round,
    "logical_not": torch.logical_not,
    "bitwise_not": torch.bitwise_not,
    "isnan": torch.isnan,
    "isinf": torch.isinf,
    "isfinite": torch.isfinite,
    "signbit": torch.signbit,
    "rounded": torch.clone,
    **SPECIAL,
    **{
        name: getattr(torch, name)
        for name in (
            "sqrt rsqrt exp exp2 expm1 log log2 log10 log1p sin cos tan asin acos atan sinh cosh tanh asinh acosh "
            "atanh erf erfc sigmoid"
        ).split()
    },
}

BINARY: dict[str, Callable[..., torch.Tensor]] = {
    "add": torch.add,
    "sub": torch.sub,
    "mul": torch.mul,
    "div": torch.div,
    "floor_div_float": torch.floor_divide,
    "remainder_float": torch.remainder,
    "fmod": torch.fmod,
    "atan2": torch.atan2,
    "pow": torch.pow,
    "copysign": torch.copysign,
    "maximum": torch.maximum,
    "minimum": torch.minimum,
    "fmax": torch.fmax,
    "fmin": torch.fmin,
    "hypot": torch.hypot,
    "zeta": torch.special.zeta,
    "nextafter": torch.nextafter,
    "bitwise_and": torch.bitwise_and,
    "bitwise_or": torch.bitwise_or,
    "bitwise_xor": torch.bitwise_xor,
    "shl": torch.bitwise_left_shift,
    "shr": torch.bitwise_right_shift,
    **{name: getattr(torch, name) for name in ("eq ne lt le gt ge logical_and logical_or logical_xor").split()},
}

ULPS = {"erfc": 4, "sinh": 4, "cosh": 4, "asinh": 4, "acosh": 4, "atanh": 4, "tan": 4, "asin": 4, "acos": 4,
        "lgamma": 16, "digamma": 16, "trigamma": 8, "zeta": 8, "gelu": 2}  # fmt: skip
"""Bound on the distance to eager in units of the last place: two for what is ours plus two for eager's own.

Near the roots of digamma and, left of zero, of lgamma they are exact beside their terms only."""

CONSTANT_DIVISOR = ("floordiv_int", "mod_int", "truncdiv_int")
PREDICATES = ("isnan", "isinf", "isfinite", "signbit", "logical_not", "eq", "ne", "lt", "le", "gt", "ge")
NO_COMPARISON = ("fma", "where", "philox", *CONSTANT_DIVISOR)
"""Those of other than one or two operands of one type; `philox` is held against the reference by whole kernels."""


def edges(dtype: torch.dtype) -> torch.Tensor:
    if dtype == torch.bool:
        return torch.tensor([False, True])
    if dtype.is_floating_point:
        special = [0.0, -0.0, float("inf"), float("-inf"), float("nan"), 1.0, -1.0, 0.5, -0.5, 1.5, 2.5, -2.5, 1e-40]
        return torch.tensor([*special, *torch.linspace(-6, 6, 50).tolist(), 1e30, -1e30, 3e4, 100.3], dtype=dtype)
    info = torch.iinfo(dtype)
    middle = [v for v in (-37, -8, -2, -1, 0, 1, 2, 3, 7, 8, 31, 64, 100) if v >= info.min]
    return torch.tensor([info.min, *middle, info.max], dtype=dtype)


def pairs(dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    first, second = torch.meshgrid(edges(dtype), edges(dtype), indexing="ij")
    return first.reshape(-1).contiguous(), second.reshape(-1).contiguous()


def eager(function: Callable[..., torch.Tensor], *args: torch.Tensor) -> torch.Tensor | None:
    """What eager gives, or None where it rejects the dtype; float32 and halves by way of float64.

    Eager's own float32 fmod is NaN where the quotient overflows, and its sqrt is an ulp off, in float64 too.
    """
    try:
        result = function(*args)
    except (RuntimeError, NotImplementedError):
        return None
    if function in SPECIAL.values() and result.dtype in (torch.float32, *HALVES):
        return function(args[0].double()).to(result.dtype)
    if function is torch.sqrt and result.dtype == torch.float64:
        with np.errstate(invalid="ignore"):
            return torch.from_numpy(np.sqrt(args[0].numpy()))
    if function is torch.nextafter:
        return None if result.dtype in HALVES else result
    if result.dtype in (torch.float32, *HALVES) and args[0].dtype == result.dtype:
        return function(*(arg.double() for arg in args)).to(result.dtype)
    return result


def op_run(op: str, function: Callable[..., torch.Tensor], dtype: torch.dtype) -> ir.Run | None:
    args = pairs(dtype) if op in BINARY else (edges(dtype),)
    if op == "trigamma":
        x = args[0]
        args = (x[(x > -1e15) & ~((x < 0) & (x == x.floor()))],)  # its poles are held to eager's own values below
    if op == "fmod" and not dtype.is_floating_point:
        return None  # by a constant only: test_emit_integer_division
    if op == "zeta":
        args = (args[0].clamp(max=50), args[1])  # eager is NaN where every term vanishes
    if op == "pow" and dtype in INTEGERS:
        args = (args[0], args[1].clamp(min=0, max=9))
    expected = eager(function, *args)
    if expected is None or (op not in PREDICATES and expected.dtype not in (dtype, torch.bool)):
        return None
    tensors = dict(zip("xy", args, strict=False))
    operands = [ir.load(name, ir.i, dtype) for name in tensors]
    return ir.make_run(
        ir.loops(i=args[0].numel()), [ir.store("out", ir.i, Call(op, tuple(operands), expected.dtype))], tensors,
        {"out": expected},
    )  # fmt: skip


CASES = [
    (op, dtype)
    for op in [*UNARY, *BINARY]
    for dtype in (*ARITHMETIC, *HALVES)
    if is_supported(op, torch.float32 if dtype in HALVES else dtype)
]


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[object, tuple[ir.Run, torch.Tensor]]:
    made = {(op, dtype): op_run(op, {**UNARY, **BINARY}[op], dtype) for op, dtype in CASES}
    made |= {("cast", source, target): cast_run(source, target) for source in C_TYPES for target in C_TYPES}
    runs = {key: run for key, run in made.items() if run is not None}
    folder: Path = tmp_path_factory.mktemp("cache")
    functions = ir.load_runs(list(runs.values()), folder)
    return {key: (run, ir.launch(functions[run.kernel.name], run)["out"]) for key, run in runs.items()}


def ulps(got: torch.Tensor, expected: torch.Tensor) -> float:
    """The largest distance in units of the last place, where both are finite; infinity where only one is."""
    if not torch.equal(got.isnan(), expected.isnan()) or not torch.equal(got.isinf(), expected.isinf()):
        return float("inf")
    finite = expected.isfinite()
    if not torch.equal(got[~finite].nan_to_num(), expected[~finite].nan_to_num()):
        return float("inf")
    a, b = got[finite].double(), expected[finite].double()
    info = torch.finfo(expected.dtype)
    unit = torch.clamp(b.abs(), min=info.tiny) * info.eps
    return float(((a - b).abs() / unit).max()) if a.numel() else 0.0


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_trigamma_at_its_poles_is_what_eager_gives(dtype: torch.dtype, tmp_path: Path) -> None:
    """Large and finite: eager's sine of a rounded multiple of pi is not zero."""
    x = -torch.arange(1, 40, dtype=dtype)
    expected = torch.polygamma(1, x)
    stores = [ir.store("out", ir.i, Call("trigamma", (ir.load("x", ir.i, dtype),), dtype))]
    run = ir.make_run(ir.loops(i=x.numel()), stores, {"x": x}, {"out": expected})
    got = ir.launch(ir.load_runs([run], tmp_path)[run.kernel.name], run)["out"]
    torch.testing.assert_close(got, expected, rtol=1e-6 if dtype == torch.float32 else 1e-14, atol=0.0)


@pytest.mark.parametrize(("op", "dtype"), CASES, ids=str)
def test_emit_operator_equals_eager(op: str, dtype: torch.dtype, results: dict) -> None:
    if (op, dtype) not in results:
        pytest.skip("eager has another result dtype here, so a lowering casts first")
    run, got = results[op, dtype]
    expected = run.expected["out"]
    assert got.dtype == expected.dtype and got.shape == expected.shape
    if not expected.dtype.is_floating_point:
        wrong = (got != expected).nonzero().flatten()[:5]
        assert wrong.numel() == 0, [tuple(t[wrong].tolist() for t in run.tensors.values()), got[wrong], expected[wrong]]
        return
    exact = op in (
        "neg",
        "abs",
        "copysign",
        "nextafter",
        "floor",
        "ceil",
        "trunc",
        "round",
        "sign",
        "sqrt",
        "mul",
        "sub",
        "div",
    )
    assert ulps(got, expected) <= (0 if exact else ULPS.get(op, 4))
    if exact:
        assert torch.equal(got.signbit()[~got.isnan()], expected.signbit()[~got.isnan()])


def cast_values(source: torch.dtype, target: torch.dtype) -> torch.Tensor:
    """The edges of `source` less those whose conversion C++ leaves open: out of range of an integer target."""
    values = edges(source)
    if source.is_floating_point:
        values = torch.cat(
            [values, torch.linspace(-127, 127, 97).to(source), torch.tensor([65504.0, 70000.0]).to(source)]
        )
    if not source.is_floating_point or target.is_floating_point or target == torch.bool:
        return values
    info = torch.iinfo(target)
    low = -255.0 if target == torch.uint8 else float(info.min)
    inside = values.isfinite() & (values.double() > low) & (values.double() < float(info.max))
    return values[inside].contiguous()


def cast_run(source: torch.dtype, target: torch.dtype) -> ir.Run:
    values = cast_values(source, target)
    expr: Expr = Cast(Load("x", ir.i, source), target)
    return ir.make_run(
        ir.loops(i=values.numel()), [ir.store("out", ir.i, expr)], {"x": values}, {"out": values.to(target)}
    )


@pytest.mark.parametrize("target", C_TYPES, ids=str)
@pytest.mark.parametrize("source", C_TYPES, ids=str)
def test_emit_cast_equals_eager(source: torch.dtype, target: torch.dtype, results: dict) -> None:
    run, got = results["cast", source, target]
    torch.testing.assert_close(got, run.expected["out"], rtol=0, atol=0, equal_nan=True)
    if target.is_floating_point:
        numbers = ~got.isnan()
        assert torch.equal(got.signbit()[numbers], run.expected["out"].signbit()[numbers])


@pytest.mark.parametrize("whole", INTEGERS, ids=str)
@pytest.mark.parametrize("source", (*FLOATS, torch.float16, torch.bfloat16), ids=str)
def test_emit_cast_there_and_back_is_not_the_fraction_cut_off(source: torch.dtype, whole: torch.dtype) -> None:
    """An integer has no sign of zero, and out of its range some other number than trunc's: in vectors and behind."""
    values = torch.tensor([-0.5, -0.0, 1.5, -2.75, math.inf, -math.inf, math.nan, 3e38, -3e38, 0.0]).double()

    def back(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return x.to(whole).to(x.dtype), x.to(whole).double()

    torch._dynamo.reset()  # all of these are one code, of which Dynamo compiles a few and leaves the rest to eager
    compiled = torch.compile(back, backend=assay, options={"fallback": "error"})
    for size in (1, 9, 70):
        x = values.repeat(7)[:size].to(source)
        for got, expected in zip(compiled(x), back(x), strict=True):
            assert torch.equal(got, expected) and torch.equal(got.signbit(), expected.signbit()), size


def chosen(value: float, x: torch.Tensor, whole: torch.dtype) -> torch.Tensor:
    return torch.where(x > 0, value, x).to(whole)


CONVERTED = {
    "nan": functools.partial(chosen, math.nan),
    "infinity": functools.partial(chosen, math.inf),
    "negative infinity": functools.partial(chosen, -math.inf),
    "what was computed": lambda x, whole: (x + 1).to(whole),
    "chosen and back": lambda x, whole: chosen(math.nan, x, whole).float(),
    "back where it is chosen": lambda x, whole: torch.where(x > 0, x.to(whole), 7).to(x.dtype),
}


@pytest.mark.parametrize("whole", INTEGERS, ids=str)
@pytest.mark.parametrize("source", (*FLOATS, torch.float16, torch.bfloat16), ids=str)
@pytest.mark.parametrize("name", CONVERTED)
def test_emit_cast_of_what_no_integer_holds_beside_what_it_is_made_of(
    name: str, source: torch.dtype, whole: torch.dtype
) -> None:
    """GCC converts the constants that are chosen among itself, NaN to 0. Halves that are whole numbers in between stay
    so."""
    values = torch.tensor([1.5, -2.75, math.inf, -math.inf, math.nan, 3e38, -3e38, 0.0, -0.5], dtype=torch.float64)
    function = CONVERTED[name]
    compiled = torch.compile(lambda x: function(x, whole), backend=assay)
    for size in (1, 9, 70):
        x = values.repeat(8)[:size].to(source)
        torch.testing.assert_close(compiled(x), function(x, whole), rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("dtype", ARITHMETIC, ids=str)
def test_emit_table_has_a_comparison_for_each_operator(dtype: torch.dtype) -> None:
    untested = set(table_of(dtype)) - set(UNARY) - set(BINARY) - set(NO_COMPARISON)
    assert not untested


def test_emit_integer_division_equals_eager(tmp_path: Path) -> None:
    runs = []
    for dtype in INTEGERS:
        values = edges(dtype)
        for divisor in (1, 2, 3, 7, *(() if dtype == torch.uint8 else (-1, -3))):
            x, by = ir.load("x", ir.i, dtype), ir.const(divisor, dtype)
            stores = [
                ir.store("quotient", ir.i, ir.call("floordiv_int", x, by)),
                ir.store("rest", ir.i, ir.call("mod_int", x, by)),
                ir.store("signed", ir.i, ir.call("fmod", x, by)),
                ir.store("truncated", ir.i, ir.call("truncdiv_int", x, by)),
            ]
            expected = {"quotient": values // divisor, "rest": values % divisor, "signed": torch.fmod(values, divisor)}
            expected["truncated"] = -values if divisor == -1 else torch.div(values, divisor, rounding_mode="trunc")
            runs.append(ir.make_run(ir.loops(i=values.numel()), stores, {"x": values}, expected))
    functions = ir.load_runs(runs, tmp_path)
    for run in runs:
        got = ir.launch(functions[run.kernel.name], run)
        for name, expected in run.expected.items():
            torch.testing.assert_close(got[name], expected, rtol=0, atol=0)


def test_emit_integer_division_by_the_constant_zero_is_refused() -> None:
    x, zero = ir.load("x", ir.i, torch.int64), ir.const(0, torch.int64)
    with pytest.raises(Unsupported, match="constant 0"):
        call(ir.call("floordiv_int", x, zero), ["a", "b"])


def test_emit_unknown_operator_says_which() -> None:
    with pytest.raises(Unsupported, match=r"'nonsense' on torch\.float32"):
        call(ir.call("nonsense", ir.load("x", ir.i)), ["a"])


@pytest.mark.parametrize("name", ["relu", "amin", "amax", "sum", "mean", "prod"])
@pytest.mark.parametrize("first", [0.0, -0.0])
def test_emit_sign_of_zero_equals_eager(name: str, first: float) -> None:
    function = getattr(torch, name)
    compiled = torch.compile(lambda x: function(x), backend=assay)
    for size in (1, 2, 9, 34):
        x = torch.tensor([first, -first]).repeat(size)[:size]
        assert torch.equal(torch.signbit(compiled(x)), torch.signbit(function(x)))
