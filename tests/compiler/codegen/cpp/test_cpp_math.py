"""Accuracy of the inline math: the worst distance of float32 to float64, and of float64 to 80 bits."""

from __future__ import annotations

import functools
import platform
import re
import subprocess
from pathlib import Path

import numpy as np
import pytest
import torch

from assay.compiler.codegen.cpp.kernel import emit_kernel
from assay.compiler.codegen.cpp.prelude import items, prelude, prelude_of
from assay.compiler.ir.loops.kernel import Call, Expr
from assay.compiler.ir.loops.rewrite import constant
from assay.compiler.toolchain.build import FLAGS, find_compiler
from tests import kernel_ir as ir

ULPS = {"exp": 1.1, "exp2": 1, "expm1": 2, "log": 1, "log1p": 1.7, "log2": 1, "log10": 1, "tanh": 1.6, "sigmoid": 1.2,
        "erf": 1.4, "sin": 1.8, "cos": 1.8, "tan": 1, "asin": 1, "acos": 1, "atan": 1, "sinh": 1, "cosh": 1, "asinh": 1,
        "acosh": 1, "atanh": 1, "erfc": 1, "erfinv": 2.3}  # fmt: skip
ULPS_64 = {"exp": 1, "exp2": 1.5, "expm1": 2, "log": 1, "log1p": 1, "log2": 1, "log10": 1, "tanh": 2.5, "sinh": 2,
           "cosh": 1.5, "asin": 2.5, "acos": 1.5, "atan": 2, "asinh": 2, "acosh": 2, "atanh": 2}  # fmt: skip
NUMPY = {"asin": "arcsin", "acos": "arccos", "atan": "arctan", "asinh": "arcsinh", "acosh": "arccosh",
         "atanh": "arctanh"}  # fmt: skip
GELU_ULPS = 2
EDGES = (0.0, -0.0, 1.0, -1.0, 2.0, 8.0, float("inf"), float("-inf"), float("nan"), 1e-45, -1e-45, 3.4e38, -3.4e38)


def sweep() -> torch.Tensor:
    """A million bit patterns from all of float32 (subnormals, huge and NaN among them), and the middle more densely."""
    patterns = torch.arange(-(2**31), 2**31, 4093, dtype=torch.int64).to(torch.int32).view(torch.float32)
    return torch.cat(
        [patterns, torch.linspace(-110, 110, 400_003), torch.linspace(-1.3, 1.3, 300_001), torch.tensor(EDGES)]
    )


def distance(got: torch.Tensor, exact: torch.Tensor) -> tuple[float, int]:
    """The worst error in units of the last place of the exact value, and at which element."""
    rounded = exact.float()
    magnitude = rounded.abs().clamp(min=2.0**-126).double()
    unit = torch.exp2(torch.floor(torch.log2(magnitude)) - 23)
    error = ((got.double() - exact) / unit).abs()
    special = ~rounded.isfinite() | ~got.isfinite()
    agrees = (got == rounded) | (got.isnan() & rounded.isnan())
    error = torch.where(special, torch.where(agrees, 0.0, torch.inf), error)
    at = int(error.argmax())
    return float(error[at]), at


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[torch.Tensor, torch.Tensor]]:
    x = sweep()
    runs = {}
    for op in ULPS:
        stores = [ir.store("y", ir.i, Call(op, (ir.load("x", ir.i),), ir.F32))]
        runs[op] = ir.make_run(ir.loops(i=x.numel()), stores, {"x": x}, {"y": x})
    folder: Path = tmp_path_factory.mktemp("cache")
    functions = ir.load_runs(list(runs.values()), folder)
    return {op: (x, ir.launch(functions[run.kernel.name], run)["y"]) for op, run in runs.items()}


@pytest.mark.parametrize("op", ULPS)
def test_math_is_within_its_ulps(op: str, results: dict[str, tuple[torch.Tensor, torch.Tensor]]) -> None:
    x, got = results[op]
    exact = getattr(torch, op)(x.double())
    worst, at = distance(got, exact)
    assert worst <= ULPS[op], (
        f"{op}({x[at].item()!r}) = {got[at].item()!r}, exactly {exact[at].item()!r}: {worst:.2f} ulp"
    )
    zeros = (x == 0) & (got == got)
    assert torch.equal(got[zeros].signbit(), exact[zeros].signbit())


def never_positive(tmp_path: Path, op: str, value: Expr, x: torch.Tensor) -> torch.Tensor:
    run = ir.make_run(ir.loops(i=x.numel()), [ir.store("y", ir.i, Call("exp", (value,), ir.F32))], {"x": x}, {"y": x})
    assert emit_kernel(run.kernel).count("m::exp_below") == 1, op
    return ir.launch(ir.load_runs([run], tmp_path)[run.kernel.name], run)["y"]


def test_math_exp_of_what_is_never_positive_is_within_its_ulps(tmp_path: Path) -> None:
    x, loaded = sweep(), ir.load("x", ir.i)
    for op, value, exact in (
        ("neg", ir.call("neg", ir.call("abs", loaded)), torch.exp(-x.double().abs())),
        ("mul", ir.call("mul", ir.const(-0.5), ir.call("mul", loaded, loaded)), torch.exp((-0.5 * (x * x)).double())),
    ):
        worst, at = distance(never_positive(tmp_path, op, value, x), exact)
        assert worst <= 1.1, f"{op}: {x[at].item()!r}: {worst:.2f} ulp"


def of_one(tmp_path: Path, op: str, x: torch.Tensor) -> torch.Tensor:
    run = ir.make_run(ir.loops(i=x.numel()), [ir.store("y", ir.i, ir.call(op, ir.load("x", ir.i)))], {"x": x}, {"y": x})
    return ir.launch(ir.load_runs([run], tmp_path)[run.kernel.name], run)["y"]


def normal_cdf(x: torch.Tensor) -> torch.Tensor:
    return torch.special.erfc(x.double() * -(0.5**0.5)) / 2


def test_math_gelu_is_within_its_ulps(tmp_path: Path) -> None:
    """Of the tail too, between -14 and 0: a million numbers, and all patterns of bits of `sweep`."""
    x = torch.cat([sweep(), torch.linspace(-14.5, 0.5, 1_000_003)])
    got, exact = of_one(tmp_path, "gelu", x), x.double() * normal_cdf(x)
    worst, at = distance(got, exact)
    assert worst <= GELU_ULPS, f"gelu({x[at].item()!r}) = {got[at].item()!r}: {worst:.2f} ulp"
    numbers = ~exact.isnan()
    assert torch.equal(got[numbers].signbit(), exact[numbers].signbit())


def test_math_gelu_slope_is_accurate(tmp_path: Path) -> None:
    """Beside 1, for two terms cancel at -0.75; and beside the result where none do, so in the tail."""
    x = torch.cat([sweep(), torch.linspace(-14.6, 2, 1_000_003)])
    got, wide = of_one(tmp_path, "gelu_slope", x), x.double()
    exact = normal_cdf(x) + wide * torch.exp(-0.5 * wide * wide) / (2 * torch.pi) ** 0.5
    assert torch.equal(got.isnan(), exact.isnan())
    error, cancels = (got.double() - exact).abs().nan_to_num(0) * 2**24, (x > -1.5) & (x < -0.3)
    beside = torch.where(cancels, 1.0, exact.abs().nan_to_num(1).clamp(2.0**-126, 1.0))
    for name, relative, bound in (("beside 1", error, 2), ("beside itself", error / beside, 7)):
        at = int(relative.argmax())
        assert relative[at] <= bound, f"{name}: gelu_slope({x[at].item()!r}) = {got[at].item()!r}: {relative[at]:.2f}"


@pytest.fixture(scope="module")
def results_64(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[torch.Tensor, torch.Tensor]]:
    generator = torch.Generator().manual_seed(0)
    bits = torch.randint(-(2**63), 2**63 - 1, (60_000,), generator=generator).view(torch.float64)
    middle = torch.linspace(-745, 712, 40_001, dtype=torch.float64), torch.linspace(-1.3, 1.3, 40_001).double()
    x = torch.cat([bits, *middle, torch.tensor(EDGES, dtype=torch.float64)])
    dtype, runs = torch.float64, {}
    for op in ULPS_64:
        stores = [ir.store("y", ir.i, Call(op, (ir.load("x", ir.i, dtype),), dtype))]
        runs[op] = ir.make_run(ir.loops(i=x.numel()), stores, {"x": x}, {"y": x})
    functions = ir.load_runs(list(runs.values()), tmp_path_factory.mktemp("cache"))
    return {op: (x, ir.launch(functions[run.kernel.name], run)["y"]) for op, run in runs.items()}


@pytest.mark.parametrize("op", ULPS_64)
def test_math_float64_is_within_its_ulps(op: str, results_64: dict[str, tuple[torch.Tensor, torch.Tensor]]) -> None:
    x, got = (tensor.numpy() for tensor in results_64[op])
    if np.finfo(np.longdouble).nmant < 60:
        pytest.skip("no wider type here")
    with np.errstate(all="ignore"):
        exact = getattr(np, NUMPY.get(op, op))(x.astype(np.longdouble))
        rounded = exact.astype(np.float64)
        unit = np.spacing(np.maximum(np.abs(rounded), np.finfo(np.float64).tiny))
        error = np.abs(got - exact) / unit
    special = ~np.isfinite(rounded) | ~np.isfinite(got)
    agrees = (got == rounded) | (np.isnan(got) & np.isnan(rounded))
    error = np.where(special, np.where(agrees, 0.0, np.inf), error)
    at = int(error.argmax())
    assert error[at] <= ULPS_64[op], f"{op}({x[at]!r}) = {got[at]!r}, exactly {exact[at]!r}: {error[at]:.2f} ulp"
    zeros = (x == 0) & (got == got)
    assert np.array_equal(np.signbit(got[zeros]), np.signbit(rounded[zeros]))


def test_math_pow_is_within_an_ulp(tmp_path: Path) -> None:
    generator = torch.Generator().manual_seed(0)
    edges = torch.tensor([*EDGES, 0.5, -0.5, 3.0, -3.0, 16777216.0, 33554434.0, 0.9999999])
    x = (
        torch.exp(torch.randn(500_000, generator=generator) * 8)
        * (torch.rand(500_000, generator=generator) - 0.2).sign()
    )
    y = torch.randn(500_000, generator=generator) * 6
    y[::3] = y[::3].round()
    first, second = torch.meshgrid(edges, edges, indexing="ij")
    x, y = torch.cat([x, first.reshape(-1)]), torch.cat([y, second.reshape(-1)])
    value = ir.call("pow", ir.load("x", ir.i), ir.load("y", ir.i))
    run = ir.make_run(ir.loops(i=x.numel()), [ir.store("z", ir.i, value)], {"x": x, "y": y}, {"z": x})
    got = ir.launch(ir.load_runs([run], tmp_path)[run.kernel.name], run)["z"]
    exact = torch.pow(x.double(), y.double())
    worst, at = distance(got, exact)
    assert worst <= 1, f"pow({x[at].item()!r}, {y[at].item()!r}) = {got[at].item()!r}, exactly {exact[at].item()!r}"
    zeros = exact == 0
    assert torch.equal(got[zeros].signbit(), exact[zeros].signbit())


@pytest.mark.parametrize("processor", ["native", "x86-64-v3"])
def test_math_loops_are_vectorised(tmp_path: Path, processor: str) -> None:
    """The compiler reports each simd loop over float32 math as vectorised, also where it does not trust gathers."""

    compiler = find_compiler("")
    if compiler is None or "Free Software Foundation" not in compiler.version:
        pytest.skip("the report is asked of gcc")
    if processor != "native" and platform.machine() != "x86_64":
        pytest.skip("compiles for x86-64 alone")
    flags = [f"-march={processor}" if flag == "-march=native" else flag for flag in FLAGS]
    x, element = torch.zeros(4096), ir.load("x", ir.i)
    two = ("maximum", "pow", "atan2", "hypot")
    bodies = {op: Call(op, (element,) * (1 + (op in two)), ir.F32) for op in (*ULPS, *two, "sqrt", "floor", "round")}
    low, high = (constant(bound, ir.F32) for bound in (0.0, 6.0))
    clamped = Call("minimum", (Call("maximum", (Call("mul", (element, element), ir.F32), low), ir.F32), high), ir.F32)
    bodies |= {"clamp": clamped, "clamp twice": Call("maximum", (Call("add", (clamped, element), ir.F32), low), ir.F32)}
    bodies |= {"gate": Call("mul", (element, clamped), ir.F32), "gelu": Call("gelu", (element,), ir.F32)}
    bodies |= {"gelu_slope": Call("gelu_slope", (element,), ir.F32)}
    is_chosen, sine = Call("gt", (element, low), torch.bool), Call("sin", (element,), ir.F32)
    bodies |= {"chosen sine": Call("where", (is_chosen, sine, element), ir.F32)}
    for op, body in bodies.items():
        run = ir.make_run(ir.loops(i=4096), [ir.store("y", ir.i, body)], {"x": x}, {"y": x})
        source = tmp_path / "unit.cpp"
        text = emit_kernel(run.kernel)
        source.write_text(prelude_of(text) + text)
        command = [compiler.path, *flags, "-fopt-info-vec-optimized", "-c", str(source), "-o", "/dev/null"]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        assert "loop vectorized" in done.stderr, op


def test_prelude_gives_each_function_with_all_that_it_needs(tmp_path: Path) -> None:
    """A unit that names one function compiles with what it is given, and is given every overload of that name."""
    compiler = find_compiler("")
    if compiler is None:
        pytest.skip("no C++ compiler runs here")
    functions = re.findall(r"^INLINE .*?(\w+)\(", prelude(), re.MULTILINE)
    names = set().union(*(item.names for item in items()))
    assert len(functions) > 150 and set(functions) <= names
    parts = [f"namespace only_{name} {{\n{prelude_of(f'm::{name}')}\n}}" for name in sorted(names)]
    for name, part in zip(sorted(names), parts, strict=True):
        assert len(re.findall(rf"\b{name}\(", part)) >= functions.count(name), name
    source = tmp_path / "unit.cpp"
    source.write_text("\n".join(part.replace("#define", "#undef INLINE\n#define", 1) for part in parts))
    done = subprocess.run([compiler.path, *FLAGS, "-fsyntax-only", "-w", str(source)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[:2000]


def test_prelude_takes_no_loop_for_a_function() -> None:
    plain = prelude_of("out0[0] = in0[0];")
    assert prelude_of("for (i64 i1 = 0; i1 < 4; i1++) out0[i1] = in0[8*i0 + i1];") == plain
    assert "f64 i1(" in prelude_of("out0[i1] = m::i1(in0[i1]);")


VECTORS = re.compile(r"ASSAY_LANES\w*\(")
"""Functions whose versions for vectors are made whether a unit calls them or not."""


def test_prelude_makes_the_code_that_the_whole_file_makes(tmp_path: Path) -> None:
    compiler = find_compiler("")
    if compiler is None:
        pytest.skip("no C++ compiler runs here")
    x, element = torch.zeros(4096), ir.load("x", ir.i)
    bodies = [Call(op, (element,), ir.F32) for op in ("lgamma", "gelu", "sin", "expm1")]
    run = ir.make_run(ir.loops(i=4096), [ir.store("y", ir.i, body) for body in bodies], {"x": x}, {"y": x})
    text, made = emit_kernel(run.kernel), []
    assert len(prelude_of(text)) < len(prelude()) / 2 and len(prelude_of("")) < 2000
    unused = [item.text for item in items() if VECTORS.match(item.text) and "sin" not in item.names]  # of every unit
    whole = functools.reduce(lambda before, one: before.replace(f"\n{one}\n", "\n"), unused, prelude())
    for before in (whole, prelude_of(text)):
        source, built = tmp_path / "unit.cpp", tmp_path / "unit.o"
        source.write_text(f"{before}\n{text}")
        subprocess.run([compiler.path, *FLAGS, "-c", str(source), "-o", str(built)], check=True)
        made.append(built.read_bytes())
    assert made[0] == made[1]
