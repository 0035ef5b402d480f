"""Random kernels against an evaluator that reads the loop IR literally: nested Python loops over float64."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Mapping

import pytest
import torch

from assay.compiler.codegen.cpp import kernel as cpp
from assay.compiler.codegen.cpp import reductions as cpp_reductions
from assay.compiler.codegen.loops import nest
from assay.compiler.ir.loops.index import FloorDiv, Index, Int, Max, Min, Mod, Product, Sum, Symbol, maximum, minimum
from assay.compiler.ir.loops.kernel import (
    AsValue,
    Bind,
    Call,
    Cast,
    Check,
    Const,
    Expr,
    Load,
    Loop,
    Reduce,
    Scan,
    Store,
)
from assay.compiler.ir.loops.verify import verify
from tests import kernel_ir as ir

F64 = torch.float64
COUNT = 80
SIZES = (1, 2, 3, 5, 16)


def evaluate_index(index: Index, values: Mapping[str, int]) -> int:
    match index:
        case Int(value):
            return value
        case Symbol(name):
            return values[name]
        case Sum(terms):
            return sum(evaluate_index(t, values) for t in terms)
        case Product(factors):
            return math.prod(evaluate_index(f, values) for f in factors)
    a, b = evaluate_index(index.a, values), evaluate_index(index.b, values)
    return {FloorDiv: a // b if b else 0, Mod: a % b if b else 0, Min: min(a, b), Max: max(a, b)}[type(index)]


def points(loops: tuple[Loop, ...], values: Mapping[str, int]) -> Iterator[dict[str, int]]:
    if not loops:
        yield dict(values)
        return
    for value in range(evaluate_index(loops[0].extent, values)):
        yield from points(loops[1:], {**values, loops[0].var: value})


OPERATORS = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "maximum": max,
    "minimum": min,
    "lt": lambda a, b: a < b,
    "neg": lambda a: -a,
    "exp": math.exp,
}


def evaluate(expr: Expr, data: Mapping[str, torch.Tensor], values: Mapping[str, int]) -> float:
    match expr:
        case Load(buffer, index, _):
            return data[buffer][evaluate_index(index, values)].item()
        case Const(value, _):
            return value
        case AsValue(index, _):
            return evaluate_index(index, values)
        case Cast(inner, _):
            return evaluate(inner, data, values)
        case Call("where", (condition, yes, no), _):
            return evaluate(yes if evaluate(condition, data, values) else no, data, values)
        case Call(op, args, _):
            return OPERATORS[op](*(evaluate(a, data, values) for a in args))
        case Reduce(op, loops, body, _):
            return reduced(op, [evaluate(body, data, point) for point in points(loops, values)])
        case Bind(loop, position, body, _):
            at, extent = int(evaluate(position, data, values)), evaluate_index(loop.extent, values)
            return evaluate(body, data, {**values, loop.var: at if 0 <= at < extent else 0})
        case Check(inner, _, _, _):
            return evaluate(inner, data, values)
        case Scan(op, loop, last, body, _):
            terms = [{**values, loop.var: at} for at in range(evaluate_index(last, values) + 1)]
            return reduced(op, [evaluate(body, data, point) for point in terms])
    raise AssertionError(expr)


def reduced(op: str, terms: list[float]) -> float:
    if op in ("argmax", "argmin"):
        return terms.index(max(terms) if op == "argmax" else min(terms))
    return {"sum": math.fsum, "max": max, "min": min}[op](terms)


class Maker:
    """Random kernels whose accesses stay inside a buffer of `SPAN` elements."""

    SPAN = 4096

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.names = 0
        self.reduces = True

    def extent(self) -> int:
        return self.random.choice(SIZES)

    def index(self, loops: list[Loop]) -> Index:
        """A row-major walk over some of the loops in some order, sometimes folded by // % min max."""
        chosen = self.random.sample(loops, self.random.randint(0, min(3, len(loops))))
        if self.random.random() < 0.6:
            chosen = [loop for loop in loops if loop in chosen]
        index: Index = Int(0)
        for loop in chosen:
            index = index * loop.extent + Symbol(loop.var)
        roll = self.random.random()
        if roll < 0.1:
            return index // self.random.choice((2, 8, 16))
        if roll < 0.2:
            return index % self.random.choice((2, 8, 16)) + index // 8 * 3
        if roll < 0.3:
            return maximum(minimum(index - 2, Int(7)), Int(0))
        return index

    def expr(self, loops: list[Loop], depth: int) -> Expr:
        roll = self.random.random()
        if depth == 0 or roll < 0.2:
            return Load(self.random.choice("xy"), self.index(loops), F64)
        if roll < 0.28:
            return AsValue(self.index(loops), F64)
        if roll < 0.32:
            return Const(self.random.choice((0.5, -2.0, 3.0)), F64)
        if roll < 0.38:
            return self.binding(loops, depth)
        if roll < 0.57 and self.reduces:
            return self.reduction(loops, depth)
        if roll < 0.62:
            condition = Call("lt", (self.expr(loops, 0), self.expr(loops, 0)), torch.bool)
            return Call("where", (condition, self.expr(loops, depth - 1), self.expr(loops, depth - 1)), F64)
        if roll < 0.7:
            return Call("exp", (Call("minimum", (self.expr(loops, depth - 1), Const(2.0, F64)), F64),), F64)
        op = self.random.choice(("add", "sub", "mul", "maximum", "minimum"))
        return Call(op, (self.expr(loops, depth - 1), self.expr(loops, depth - 1)), F64)

    def binding(self, loops: list[Loop], depth: int) -> Expr:
        """A value at a position that is data, now and then out of range, and checked with what always holds."""
        self.names += 1
        name = self.random.choice((f"b{self.names}", "b"))
        loop = Loop(name, Int(self.extent()))
        around = [each for each in loops if each.var != name]
        position = Cast(Call("mul", (self.expr(around, depth - 1), Const(2.0, F64)), F64), torch.int64)
        small = Call(
            "minimum",
            (Call("maximum", (position, Const(-3, torch.int64)), torch.int64), Const(20, torch.int64)),
            torch.int64,
        )
        holds = Call("lt", (small, Const(99, torch.int64)), torch.bool)
        checked = Check(small, holds, "index", torch.int64) if self.random.random() < 0.5 else small
        return Bind(loop, checked, self.expr([*around, loop], depth - 1), F64)

    def scan(self, loops: list[Loop], along: Loop) -> Expr:
        """A running total along one loop of the kernel."""
        self.names += 1
        inner = Loop(f"c{self.names}", along.extent)
        body = self.expr([inner if loop is along else loop for loop in loops], 2)
        return Scan(self.random.choice(("sum", "max", "min")), inner, Symbol(along.var), body, F64)

    def reduction(self, loops: list[Loop], depth: int) -> Expr:
        own = []
        for _ in range(self.random.randint(1, 2)):
            self.names += 1
            name = self.random.choice((f"k{self.names}", "k", "j9"))
            extent = self.random.choice([loop.extent for loop in loops] + [Int(self.extent())])
            if all(loop.var != name for loop in own):
                own.append(Loop(name, extent))
        around = [loop for loop in loops if all(loop.var != o.var for o in own)]
        body = self.expr([*around, *own], depth - 1)
        op = self.random.choice(("sum", "max", "min", "argmax", "argmin"))
        dtype = torch.int64 if op.startswith("arg") else F64
        made = Reduce(op, tuple(own), body, dtype)
        return Cast(made, F64) if dtype != F64 else made

    def run(self) -> ir.Run:
        over = [Loop(f"i{d}", Int(self.extent())) for d in range(self.random.randint(0, 3))]
        scanned = self.random.choice(over) if over and self.random.random() < 0.4 else None
        self.reduces = scanned is None
        stores = []
        for number in range(self.random.randint(1, 3)):
            mine = [loop for loop in over if self.random.random() < 0.8]
            index: Index = Int(0)
            for loop in self.random.sample(mine, len(mine)):
                index = index * loop.extent + Symbol(loop.var)
            if scanned in mine and self.random.random() < 0.8:
                expr: Expr = Call("add", (self.scan(mine, scanned), self.expr(mine, 0)), F64)
            else:
                expr = self.expr(mine, 3)
            stores.append(Store(f"out{number}", index, expr, "write"))
        data = {name: torch.randn(self.SPAN, dtype=F64, generator=GENERATOR) for name in "xy"}
        run = self.expect(tuple(over), stores, data)
        verify(run.kernel)
        return run

    def expect(self, over: tuple[Loop, ...], stores: list[Store], data: dict[str, torch.Tensor]) -> ir.Run:
        expected = {s.buffer: torch.full((self.SPAN,), 77.0, dtype=F64) for s in stores}
        for s in stores:
            mentioned = {loop.var for loop in over}
            for point in points(tuple(loop for loop in over if loop.var in mentioned), {}):
                expected[s.buffer][evaluate_index(s.index, point)] = evaluate(s.expr, data, point)
        return ir.make_run(over, stores, data, expected)


GENERATOR = torch.Generator().manual_seed(0)


LIMITS = {
    "as they are": {},
    "small": {"PARALLEL_WORK": 0, "TILE": 4, "PARTS": 3, "LANES": 4, "SCRATCH_BYTES": 64, "SHORTEST_PEELED": 1},
}
"""With small limits, small kernels too run in parallel, in parts, in squares, in tiles of lanes, in segments."""


@pytest.fixture(scope="module")
def made() -> list[ir.Run]:
    return [Maker(seed).run() for seed in range(COUNT)]


@pytest.fixture(scope="module", params=LIMITS)
def results(
    request: pytest.FixtureRequest, made: list[ir.Run], tmp_path_factory: pytest.TempPathFactory
) -> list[dict[str, torch.Tensor]]:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in LIMITS[request.param].items():
            for module in (cpp, cpp_reductions, nest):
                if hasattr(module, name):
                    patch.setattr(module, name, value)
        functions = ir.load_runs(made, tmp_path_factory.mktemp("cache"))
    return [ir.launch(functions[run.kernel.name], run) for run in made]


@pytest.mark.parametrize("seed", range(COUNT))
def test_emit_fuzz_equals_literal_evaluation(
    seed: int, made: list[ir.Run], results: list[dict[str, torch.Tensor]]
) -> None:
    for name, expected in made[seed].expected.items():
        torch.testing.assert_close(
            results[seed][name], expected, rtol=1e-11, atol=1e-11, msg=lambda m: f"{m}\n{made[seed].kernel}"
        )
