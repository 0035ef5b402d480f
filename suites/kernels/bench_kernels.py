"""Generated kernels from hand-written loop IR against eager, on one problem each.

    python -m pytest suites/kernels/bench_kernels.py [--benchmark-group-by=param:name]

A kernel whose result is not eager's, to its bound, fails instead of reporting a time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch

from assay.compiler.ir.loops.index import Index, Int, Symbol
from assay.compiler.ir.loops.kernel import Buffer, Call, Const, Expr, Kernel, Load, Loop, Reduce, ReduceOp, Store
from assay.compiler.options import Options
from assay.compiler.toolchain.launch import load_cpp

ROWS, WIDTH, DEPTH = 1024, 1024, 16
F32 = torch.float32
BOUND = 2e-6
i, j, k = Symbol("i"), Symbol("j"), Symbol("k")


@dataclass(frozen=True)
class Problem:
    """A kernel over `inputs` and one output like that of `eager`."""

    name: str
    loops: tuple[Loop, ...]
    index: Index
    expr: Expr
    inputs: dict[str, torch.Tensor]
    eager: Callable[..., torch.Tensor]

    def kernel(self) -> Kernel:
        expected = self.eager(*self.inputs.values())
        tensors = {**self.inputs, "out": expected}
        buffers = tuple(Buffer(name, t.dtype, Int(t.numel())) for name, t in tensors.items())
        return Kernel(self.name, self.loops, (Store("out", self.index, self.expr, "write"),), buffers, (), (self.name,))


def _load(name: str, index: Index) -> Load:
    return Load(name, index, F32)


def _call(op: str, *args: Expr | float) -> Call:
    return Call(op, tuple(Const(a, F32) if isinstance(a, float) else a for a in args), F32)


def _loops(**extents: int) -> tuple[Loop, ...]:
    return tuple(Loop(name, Int(extent)) for name, extent in extents.items())


def _reduce(op: ReduceOp, body: Expr, **extents: int) -> Reduce:
    return Reduce(op, _loops(**extents), body, F32)


def _softmax(x: torch.Tensor) -> Problem:
    top = _reduce("max", _load("x", i * WIDTH + k), k=WIDTH)
    total = _reduce("sum", _call("exp", _call("sub", _load("x", i * WIDTH + k), top)), k=WIDTH)
    expr = _call("div", _call("exp", _call("sub", _load("x", i * WIDTH + j), top)), total)
    return Problem("softmax", _loops(i=ROWS, j=WIDTH), i * WIDTH + j, expr, {"x": x}, lambda x: x.softmax(1))


def _layer_norm(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> Problem:
    mean = _call("div", _reduce("sum", _load("x", i * WIDTH + k), k=WIDTH), float(WIDTH))
    offset = _call("sub", _load("x", i * WIDTH + k), mean)
    variance = _call("div", _reduce("sum", _call("mul", offset, offset), k=WIDTH), float(WIDTH))
    scale = _call("rsqrt", _call("add", variance, 1e-5))
    scaled = _call("mul", _call("mul", _call("sub", _load("x", i * WIDTH + j), mean), scale), _load("w", j))
    expr = _call("add", scaled, _load("b", j))
    inputs = {"x": x, "w": w, "b": b}
    eager = lambda x, w, b: torch.nn.functional.layer_norm(x, (WIDTH,), w, b)
    return Problem("layer_norm", _loops(i=ROWS, j=WIDTH), i * WIDTH + j, expr, inputs, eager)


def _gelu_mul_add(x: torch.Tensor, y: torch.Tensor, b: torch.Tensor) -> Problem:
    at = i * WIDTH + j
    value = _load("x", at)
    gelu = _call("mul", _call("mul", value, 0.5), _call("add", _call("erf", _call("mul", value, 0.5**0.5)), 1.0))
    expr = _call("add", _call("mul", gelu, _load("y", at)), _load("b", j))
    inputs = {"x": x, "y": y, "b": b}
    eager = lambda x, y, b: torch.nn.functional.gelu(x) * y + b
    return Problem("gelu_mul_add", _loops(i=ROWS, j=WIDTH), at, expr, inputs, eager)


def _sum(x: torch.Tensor, dim: int) -> Problem:
    """The sum of a [DEPTH, ROWS // DEPTH, WIDTH] tensor over one dimension."""
    extents = {"i": DEPTH, "j": ROWS // DEPTH, "k": WIDTH}
    names = list(extents)
    reduced = names.pop(dim)
    index = i * (ROWS // DEPTH * WIDTH) + j * WIDTH + k
    out = Symbol(names[0]) * extents[names[1]] + Symbol(names[1])
    expr = _reduce("sum", _load("x", index), **{reduced: extents[reduced]})
    view = x.view(DEPTH, ROWS // DEPTH, WIDTH)
    loops = _loops(**{name: extents[name] for name in names})
    return Problem(f"sum_dim{dim}", loops, out, expr, {"x": view}, lambda x: x.sum(dim))


def _sum_all(x: torch.Tensor) -> Problem:
    expr = _reduce("sum", _load("x", k), k=ROWS * WIDTH)
    return Problem("sum_all", (), Int(0), expr, {"x": x}, lambda x: x.sum())


def _transposed_add(x: torch.Tensor, y: torch.Tensor) -> Problem:
    expr = _call("add", _load("x", i * WIDTH + j), _load("y", j * ROWS + i))
    eager = lambda x, y: x + y.t()
    return Problem("transposed_add", _loops(i=ROWS, j=WIDTH), i * WIDTH + j, expr, {"x": x, "y": y}, eager)


def problems() -> list[Problem]:
    generator = torch.Generator().manual_seed(0)
    x, y = (torch.randn(ROWS, WIDTH, generator=generator) for _ in range(2))
    w, b = (torch.randn(WIDTH, generator=generator) for _ in range(2))
    sums = [_sum(x, dim) for dim in range(3)]
    return [_softmax(x), _layer_norm(x, w, b), _gelu_mul_add(x, y, b), *sums, _sum_all(x), _transposed_add(x, y)]


PROBLEMS = {problem.name: problem for problem in problems()}


@pytest.fixture(scope="module")
def functions() -> dict[str, Callable[..., None]]:
    return load_cpp([problem.kernel() for problem in PROBLEMS.values()], Options.of(None, None))


def check(problem: Problem, got: torch.Tensor) -> None:
    """Raises: AssertionError unless the result is as close to float64 as eager is, or within `BOUND` of it."""
    exact = problem.eager(*(t.double() for t in problem.inputs.values()))
    eager = problem.eager(*problem.inputs.values())
    assert got.dtype == eager.dtype and got.shape == eager.shape
    bound = max(float((eager - exact).abs().max()), BOUND * float(exact.abs().max()))
    assert float((got - exact).abs().max()) <= bound


@pytest.mark.parametrize("backend", ["assay", "eager"])
@pytest.mark.parametrize("name", PROBLEMS)
def test_kernel_speed(name: str, backend: str, benchmark: Any, functions: dict[str, Callable[..., None]]) -> None:
    problem = PROBLEMS[name]
    if backend == "eager":
        benchmark(problem.eager, *problem.inputs.values())
        return
    out = torch.empty_like(problem.eager(*problem.inputs.values()))
    function = functions[name]
    addresses = [tensor.data_ptr() for tensor in (*problem.inputs.values(), out)]
    function(*addresses)
    check(problem, out)
    benchmark(function, *addresses)
