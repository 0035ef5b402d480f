"""Accuracy of the inline float32 math: the worst distance to float64 over all of the range."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
import torch

from compiler.codegen.cpp import emit_kernel, prelude
from compiler.ir.loops import Call
from compiler.runtime.build import FLAGS, find_compiler
from tests import kernel_ir as ir

ULPS = {"exp": 1.1, "exp2": 1, "expm1": 2, "log": 1, "log1p": 1.7, "log2": 1, "log10": 1, "tanh": 1.6, "sigmoid": 1.2,
        "erf": 1.4, "sin": 1.8, "cos": 1.8}  # fmt: skip
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
    zeros = x == 0
    assert torch.equal(got[zeros].signbit(), exact[zeros].signbit())


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


def test_math_loops_are_vectorised(tmp_path: Path) -> None:
    """The compiler reports each simd loop over float32 math as vectorised."""

    compiler = find_compiler("")
    if compiler is None or "Free Software Foundation" not in compiler.version:
        pytest.skip("the report is asked of gcc")
    x = torch.zeros(4096)
    for op in (*ULPS, "sqrt", "floor", "round", "maximum"):
        args = tuple(ir.load("x", ir.i) for _ in range(2 if op == "maximum" else 1))
        run = ir.make_run(ir.loops(i=4096), [ir.store("y", ir.i, Call(op, args, ir.F32))], {"x": x}, {"y": x})
        source = tmp_path / "unit.cpp"
        source.write_text(prelude() + emit_kernel(run.kernel))
        command = [compiler.path, *FLAGS, "-fopt-info-vec-optimized", "-c", str(source), "-o", "/dev/null"]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        assert "loop vectorized" in done.stderr, op
