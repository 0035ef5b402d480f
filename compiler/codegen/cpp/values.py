"""Values of a nest in C++: what is named in the scopes that are open, and the text of what is not.

A value has a name once it is computed; what does not depend on a loop is computed outside of it (`hoist`). Reductions
are made before what reads them (`reduce`), which is `reductions.py`'s.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch

from assay.compiler.codegen.cpp.accumulators import Accumulator, scan_step
from assay.compiler.codegen.cpp.expressions import C_TYPES, call, cast, constant
from assay.compiler.codegen.loops import affine
from assay.compiler.codegen.loops.narrow import narrowed
from assay.compiler.codegen.loops.nest import (
    Nest,
    apart_loops,
    is_never_positive,
    loops_of,
    scanned_loop,
)
from assay.compiler.codegen.loops.renamer import Variables, operands, subexpressions
from assay.compiler.errors import VerifyError
from assay.compiler.ir.loops.index import Index, Int
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
from assay.compiler.ir.loops.rewrite import is_scattered, loops_bound_by


class Writer:
    def __init__(self) -> None:
        self._lines: list[str] = []
        self._depth = 0
        self._pragmas: list[tuple[int, int]] = []

    def line(self, text: str) -> None:
        self._lines.append("  " * self._depth + text)

    def pragma(self, text: str) -> None:
        """An OpenMP pragma over the loop that is written next."""
        self._pragmas.append((self._depth, len(self._lines)))
        self.line(f"#pragma omp {text}")

    def check(self, condition: str, bit: int) -> None:
        """Notes that a condition does not hold; the loops around join what they found."""
        self.line(f"failed |= (u64)!{condition} << {bit};")
        for depth, number in self._pragmas:
            if depth < self._depth and "failed" not in self._lines[number]:
                self._lines[number] += " reduction(|:failed)"

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        self.line(f"{head} {{".lstrip())
        self._depth += 1
        yield
        self._depth -= 1
        self._pragmas = [(depth, number) for depth, number in self._pragmas if depth < self._depth]
        self.line("}")

    def text(self) -> str:
        return "\n".join(self._lines) + "\n"


@dataclass(frozen=True, slots=True)
class Tile:
    """`length` <= `capacity` iterations of a loop, from `first` on, side by side."""

    loop: Loop
    first: str
    length: str
    capacity: int


class Values:
    """The values of one nest, as text. `names` maps an expression's id to the text of its value in the scopes that are
    open; `taken` is what reductions of another nest take in, in each iteration of all loops."""

    def __init__(self, writer: Writer, variables: Variables, nest: Nest, failures: tuple[str, ...],
                 streamed: dict[str, str]) -> None:  # fmt: skip
        self.writer, self.variables = writer, variables
        self.streamed = {store.buffer: streamed[store.buffer] for store in nest.stores if store.buffer in streamed}
        self.lines: dict[str, str] = {}
        self.whole, self.nest = nest, narrowed(nest, variables)
        self.failures = failures
        self.names: list[dict[Expr, str]] = [{}]
        self.kept: list[Expr] = []  # so that the ids in `names` stay taken
        self.bound: frozenset[str] = frozenset()
        self.extents: dict[str, Index] = {loop.var: loop.extent for loop in nest.loops}
        self.ranges: dict[str, tuple[str, str]] = {}
        self.count = itertools.count()
        self.parallel = False
        self.in_parts = False
        self.ahead = 0
        self.is_beyond_cache = False
        self.taken: list[tuple[Accumulator, Expr]] = []
        self.tile: Tile | None = None
        self.apart = frozenset.intersection(*(_apart(store, nest.loops, variables) for store in self.nest.stores))
        self.independent = self.apart >= set(self.extents)
        found = subexpressions(s.expr for s in self.nest.stores)
        self.reductions = [e for e in found if isinstance(e, Reduce)]
        self.bindings = [e for e in found if isinstance(e, Bind)]
        self.scans = [e for e in found if isinstance(e, Scan)]
        self.scanned = scanned_loop(self.nest.stores)
        self.totals: dict[Expr, str] = {}
        self.checks = any(isinstance(e, Check) for e in found)
        self.loop_names = frozenset(self.extents) | names_bound(found)

    # ---- scopes ----

    @contextmanager
    def scope(self, *loops: Loop) -> Iterator[None]:
        """The loops are open: their variables are bound, and what is named inside is forgotten at the end."""
        before = self.bound, self.extents
        self.bound = self.bound | {loop.var for loop in loops}
        self.extents = {**self.extents, **{loop.var: loop.extent for loop in loops}}
        self.names.append({})
        yield
        self.names.pop()
        self.bound, self.extents = before

    def known(self, expr: Expr) -> str | None:
        return next((scope[expr] for scope in reversed(self.names) if expr in scope), None)

    def name(self, expr: Expr, text: str) -> None:
        self.kept.append(expr)
        self.names[-1][expr] = text

    def fresh(self, prefix: str) -> str:
        return f"{prefix}{next(self.count)}"

    def is_bound(self, expr: Expr, hidden: frozenset[str] = frozenset()) -> bool:
        """Whether every loop that the value depends on is open here, and none of `hidden`, bound between, is among."""
        needed = self.variables.free(expr) & self.loop_names
        return needed <= self.bound and not needed & hidden

    def index(self, index: Index) -> str:
        return affine.text(index, self.extents)

    # ---- values ----

    def value(self, expr: Expr) -> str:
        """The text of the value here: a literal, or the name of a constant that this line or an earlier one made."""
        if isinstance(expr, Const):
            return constant(expr.value, expr.dtype)
        known = self.known(expr)
        if known is None:
            known = self._made(expr)
            self.name(expr, known)
        return known

    def _made(self, expr: Expr) -> str:
        """The text of a value that was not made yet, after the lines that make it."""
        if isinstance(expr, Bind):
            self.declare(expr)
            self.ready([expr.body])
            return self.value(expr.body)
        if isinstance(expr, Check):
            bit = self.failures.index(expr.failure)
            self.writer.check(self.value(expr.condition), bit)
            return self.value(expr.expr)
        if isinstance(expr, Scan):
            total = self.totals[expr]
            in_lanes = total.endswith("[lane]")
            self.writer.line(scan_step(expr.op, expr.dtype, total, self.value(expr.body), in_lanes))
            return total
        name, text = self.fresh("t"), self._text(expr)
        self.writer.line(f"const {C_TYPES[expr.dtype]} {name} = {text};")
        return name

    def declare(self, expr: Bind) -> None:
        """Makes the variable of a binding, in range whatever the position is."""
        var, extent = expr.loop.var, expr.loop.extent
        if var not in self.bound:
            self.ready([expr.position])
            position, size = self.value(expr.position), self.index(extent)
            self.writer.line(f"const i64 {var} = (u64)({position}) < (u64)({size}) ? {position} : 0;")
            self.bound |= {var}
            self.extents = {**self.extents, var: extent}

    def _text(self, expr: Expr) -> str:
        match expr:
            case Load(buffer, index, dtype):
                return f"{buffer}[{self.index(index)}]" + (" != 0" if dtype == torch.bool else "")
            case AsValue(index, dtype):
                return cast(f"(i64)({self.index(index)})", torch.int64, dtype)
            case Cast(inner, dtype):
                return cast(self.value(inner), inner.dtype, dtype, self._is_made(inner))
            case Call("exp", (value,), torch.float32) if is_never_positive(value):
                return f"m::exp_below({self.value(value)})"
            case Call(_, args):
                return call(expr, [self.value(arg) for arg in args])
        raise VerifyError(f"assay: {expr} is used where its loops are not open")

    def _is_made(self, expr: Expr) -> bool:
        """Whether a value is neither read from where the nest only reads nor known."""
        if isinstance(expr, Load):
            return any(store.buffer == expr.buffer for store in self.nest.stores)
        return not isinstance(expr, AsValue | Const)

    def hoist(self, roots: Iterable[Expr]) -> None:
        """Makes, here, the largest values under the roots that no further loop changes."""
        roots = list(roots)
        self.ready(roots)
        for expr in self._settled(roots):
            if not isinstance(expr, Const):
                self.value(expr)

    def ready(self, roots: Iterable[Expr]) -> None:
        """Makes, here, the reductions under the roots and the variables of bindings, which others may wait for."""
        roots = list(roots)
        self.reduce(roots)
        if not self.bindings:
            return
        settled = [e for e in self._settled_bindings(roots) if e.loop.var not in self.bound]
        for expr in settled:
            self.declare(expr)
        if settled:
            self.ready(roots)

    def _settled_bindings(self, roots: Iterable[Expr]) -> list[Bind]:
        """The bindings under the roots whose positions no further loop changes, inner ones first."""
        found: list[Bind] = []
        seen: set[tuple[Expr, frozenset[str]]] = set()

        def visit(expr: Expr, hidden: frozenset[str]) -> None:
            if (expr, hidden) in seen or self.known(expr) is not None:
                return
            seen.add((expr, hidden))
            inner = hidden | {loop.var for loop in expr.loops} if isinstance(expr, Reduce) else hidden
            for operand in operands(expr):
                visit(operand, inner)
            if isinstance(expr, Bind) and self.is_bound(expr.position, hidden):
                found.append(expr)

        for root in roots:
            visit(root, frozenset())
        return found

    def _settled(self, roots: Iterable[Expr]) -> list[Expr]:
        found: list[Expr] = []
        seen: set[tuple[Expr, frozenset[str]]] = set()

        def visit(expr: Expr, hidden: frozenset[str]) -> None:
            if (expr, hidden) in seen or self.known(expr) is not None:
                return
            seen.add((expr, hidden))
            if self.is_bound(expr, hidden):
                found.append(expr)
                return
            inner = hidden | {loop.var for loop in expr.loops} if isinstance(expr, Reduce) else hidden
            for operand in operands(expr):
                visit(operand, inner)

        for root in roots:
            visit(root, frozenset())
        return found

    def reduce(self, roots: Iterable[Expr]) -> None:
        """Makes the reductions that the roots read."""
        raise NotImplementedError


def names_bound(found: Iterable[Expr]) -> frozenset[str]:
    """The variables that expressions bind."""
    return frozenset(loop.var for expr in found for loop in loops_bound_by(expr))


def _apart(store: Store, loops: Sequence[Loop], variables: Variables) -> frozenset[str]:
    """The loops of which no two iterations of the store touch one element, so that they may run in any order.

    For a `write` that is all of them by the meaning of a kernel, if its place is not data; others must show it by
    their strides.
    """
    if is_scattered(store):
        return apart_loops(store, loops)
    every = frozenset(loop.var for loop in loops)
    return every if store.mode == "write" or _is_injective(store, loops, variables) else frozenset()


def _is_injective(store: Store, loops: Sequence[Loop], variables: Variables) -> bool:
    """Whether strides show that an update touches no element twice."""
    mine = [loop for loop in loops if loop.var in loops_of(variables, store, loops)]
    steps = [(affine.stride(store.index, loop.var), loop.extent) for loop in mine]
    known = [(s.value, e.value) for s, e in steps if isinstance(s, Int) and isinstance(e, Int) and s.value > 0]
    if len(known) == len(steps):
        ordered = sorted(known)
        reach = list(itertools.accumulate((s * (e - 1) for s, e in ordered), initial=0))
        return all(step > below for (step, _), below in zip(ordered, reach, strict=False))
    return len(steps) == 1 and steps[0][0] == Int(1)
