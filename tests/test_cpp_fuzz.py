"""Random kernels against an evaluator that reads the loop IR literally: nested Python loops over float64."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
import torch

from compiler.ir.index import FloorDiv, Index, Int, Max, Min, Mod, Product, Sum, Symbol, maximum, minimum
from compiler.ir.loops import AsValue, Call, Cast, Const, Expr, Load, Loop, Reduce, Store
from tests import kernel_ir as ir

F64 = torch.float64
COUNT = 40
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
        if roll < 0.55:
            return self.reduction(loops, depth)
        if roll < 0.62:
            condition = Call("lt", (self.expr(loops, 0), self.expr(loops, 0)), torch.bool)
            return Call("where", (condition, self.expr(loops, depth - 1), self.expr(loops, depth - 1)), F64)
        if roll < 0.7:
            return Call("exp", (Call("minimum", (self.expr(loops, depth - 1), Const(2.0, F64)), F64),), F64)
        op = self.random.choice(("add", "sub", "mul", "maximum", "minimum"))
        return Call(op, (self.expr(loops, depth - 1), self.expr(loops, depth - 1)), F64)

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
        stores = []
        for number in range(self.random.randint(1, 3)):
            mine = [loop for loop in over if self.random.random() < 0.8]
            index: Index = Int(0)
            for loop in self.random.sample(mine, len(mine)):
                index = index * loop.extent + Symbol(loop.var)
            stores.append(Store(f"out{number}", index, self.expr(mine, 3), "write"))
        data = {name: torch.randn(self.SPAN, dtype=F64, generator=GENERATOR) for name in "xy"}
        return self.expect(tuple(over), stores, data)

    def expect(self, over: tuple[Loop, ...], stores: list[Store], data: dict[str, torch.Tensor]) -> ir.Run:
        expected = {s.buffer: torch.full((self.SPAN,), 77.0, dtype=F64) for s in stores}
        for s in stores:
            mentioned = {loop.var for loop in over}
            for point in points(tuple(loop for loop in over if loop.var in mentioned), {}):
                expected[s.buffer][evaluate_index(s.index, point)] = evaluate(s.expr, data, point)
        return ir.make_run(over, stores, data, expected)


GENERATOR = torch.Generator().manual_seed(0)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[ir.Run, dict[str, torch.Tensor]]]:
    made = [Maker(seed).run() for seed in range(COUNT)]
    folder: Path = tmp_path_factory.mktemp("cache")
    functions = ir.load_runs(made, folder)
    return [(run, ir.launch(functions[run.kernel.name], run)) for run in made]


@pytest.mark.parametrize("seed", range(COUNT))
def test_emit_fuzz_equals_literal_evaluation(seed: int, runs: list[tuple[ir.Run, dict[str, torch.Tensor]]]) -> None:
    run, got = runs[seed]
    for name, expected in run.expected.items():
        torch.testing.assert_close(got[name], expected, rtol=1e-11, atol=1e-11, msg=lambda m, r=run: f"{m}\n{r.kernel}")
