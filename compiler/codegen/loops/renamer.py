"""Expressions of a kernel as the emitter has them: their indices are renamed at once.

    expression -> Renamer -> its loops' variables replaced, indices simplified, what then is known decided

Decided are comparisons of indices whose gap has one sign, choices whose condition is known, and sums of zeros: `x + 0`
turns -0.0 into 0.0, so one such addition stays of several.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace

import torch

from assay.compiler.codegen.loops import affine
from assay.compiler.ir.loops.index import Index, Int, Symbol
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
from assay.compiler.ir.loops.rewrite import free_variables, renamed_at_root


def operands(expr: Expr) -> tuple[Expr, ...]:
    match expr:
        case Call(_, args):
            return args
        case Cast(inner):
            return (inner,)
        case Reduce(_, _, body):
            return (body,)
        case Bind(_, position, body):
            return position, body
        case Check(inner, condition):
            return inner, condition
        case Scan():
            return (expr.body,)
    return ()


class Variables:
    """The variables of a kernel's expressions: which of them each depends on, and those that a `Bind` gives a value."""

    def __init__(self) -> None:
        self._free: dict[Expr, frozenset[str]] = {}
        self._places: dict[tuple[Expr, Index], str] = {}
        self.positions: dict[str, Expr] = {}
        """The position of each variable that a `Bind` gives a value."""

    def place(self, position: Expr, extent: Index) -> str:
        """The one variable for a position."""
        name = self._places.setdefault((position, extent), f"g{len(self._places)}")
        self.positions[name] = position
        return name

    def free(self, expr: Expr) -> frozenset[str]:
        """The loop variables and symbols that the value depends on."""
        known = self._free.get(expr)
        if known is None:
            known = self._free[expr] = self._find_free(expr)
        return known

    def _find_free(self, expr: Expr) -> frozenset[str]:
        if isinstance(expr, Load | AsValue):
            names = affine.names(expr.index)
            return names.union(*(self.free(self.positions[name]) for name in names & self.positions.keys()))
        inside = frozenset[str]().union(*map(self.free, operands(expr)))
        if isinstance(expr, Bind):
            return inside - {expr.loop.var}
        if isinstance(expr, Scan):
            return inside | affine.names(expr.last)
        return inside - {loop.var for loop in expr.loops} if isinstance(expr, Reduce) else inside


def subexpressions(roots: Iterable[Expr]) -> list[Expr]:
    """Every distinct expression under the roots, the bodies of reductions included, operands first."""
    found: dict[Expr, None] = {}
    open_: set[Expr] = set()
    stack = list(roots)[::-1]
    while stack:
        expr = stack[-1]
        if expr in found or expr in open_:
            found.setdefault(stack.pop())
        else:
            open_.add(expr)
            stack += [operand for operand in operands(expr)[::-1] if operand not in found]
    return list(found)


def indices(roots: Iterable[Expr]) -> list[Index]:
    found = subexpressions(roots)
    return [e.index if isinstance(e, Load | AsValue) else e.last for e in found if isinstance(e, Load | AsValue | Scan)]


# ---- one rewrite of indices ----


class Renamer:
    """Applies a substitution to every index of an expression, and simplifies what it gives."""

    def __init__(
        self,
        variables: Variables,
        environment: Mapping[str, Index],
        extents: affine.Extents,
        around: Renamer | None = None,
        bound: frozenset[str] = frozenset(),
    ) -> None:
        """In a reduction that binds `bound`, `around` is what renames outside of it."""
        self.variables, self.environment, self.extents = variables, environment, extents
        self.around, self.bound = around, bound
        self.free: dict[Expr, frozenset[str]] = around.free if around is not None else {}
        self.done: dict[Expr, Expr] = {}

    def index(self, index: Index) -> Index:
        return affine.simplify(affine.substitute(index, self.environment), self.extents)

    def __call__(self, expr: Expr) -> Expr:
        if self.around is not None and isinstance(expr, Reduce) and not free_variables(expr, self.free) & self.bound:
            return self.around(expr)  # once for all reductions that it is in: each of them may be in several others
        if expr not in self.done:
            self.done[expr] = self._rename(expr)
        return self.done[expr]

    def _rename(self, expr: Expr) -> Expr:
        match expr:
            case Load() | AsValue():
                return replace(expr, index=self.index(expr.index))
            case Call():
                renamed = replace(expr, args=tuple(map(self, expr.args)))
                return self._decided(renamed)
            case Cast():
                return replace(expr, expr=self(expr.expr))
            case Reduce():
                return self._reduction(expr)
            case Check():
                return replace(expr, expr=self(expr.expr), condition=self(expr.condition))
            case Bind():
                return self.bind(expr, self(expr.position), expr.body)
            case Scan():
                return self._scan(expr)
        return expr

    def _scan(self, expr: Scan) -> Expr:
        """The scan with its body over the loop that it runs along; of a single element, what a total of it is."""
        last = self.index(expr.last)
        body = Renamer(self.variables, {**self.environment, expr.loop.var: last}, self.extents)(expr.body)
        if not isinstance(last, Int):
            return replace(expr, last=last, body=body)
        start = Const(0.0, expr.dtype)
        is_sum = expr.op == "sum" and expr.dtype.is_floating_point
        return Call("add", (start, body), expr.dtype) if is_sum else body

    def _decided(self, expr: Call) -> Expr:
        """A comparison of indices as what it is in every iteration, where that is known, and what depends on it."""
        match expr:
            case Call("where", (Const(value, _), yes, no), _):
                return yes if value else no
            case Call("logical_and", (Const(True), other), _) | Call("logical_and", (other, Const(True)), _):
                return other if other.dtype is torch.bool else expr
            case Call("lt" | "ge", (first, second), _):
                low, high = self._gap(first, second)
                return Const((high < 0) == (expr.op == "lt"), torch.bool) if high < 0 or low >= 0 else expr
            case Call("eq" | "ne", (first, second), _):
                low, high = self._gap(first, second)
                is_known = low == high == 0 or low > 0 or high < 0
                return Const((low == high == 0) == (expr.op == "eq"), torch.bool) if is_known else expr
            case Call("add", (first, second), _):
                return _sum(expr, first, second)
        return expr

    def _gap(self, first: Expr, second: Expr) -> affine.Interval:
        """The least and the largest difference of two indices; either sign for what is none."""
        a, b = index_of(first), index_of(second)
        return (-1, 1) if a is None or b is None else affine.interval_of_gap(a - b, self.extents)

    def bind(self, expr: Bind, position: Expr, body: Expr) -> Bind:
        """The body where the variable is that of `position`."""
        extent = self.index(expr.loop.extent)
        var = self.variables.place(position, extent)
        environment, extents = {**self.environment, expr.loop.var: Symbol(var)}, {**self.extents, var: extent}
        return Bind(Loop(var, extent), position, Renamer(self.variables, environment, extents)(body), expr.dtype)

    def _reduction(self, expr: Reduce) -> Expr:
        bound = frozenset(loop.var for loop in expr.loops)
        outer = {name: value for name, value in self.environment.items() if name not in bound}
        extents = {**self.extents, **{loop.var: loop.extent for loop in expr.loops}}
        return replace(expr, body=Renamer(self.variables, outer, extents, self, bound)(expr.body))


def index_of(expr: Expr) -> Index | None:
    """The index that an integer value stands for, if it is one."""
    if expr.dtype is not torch.int64:
        return None
    if isinstance(expr, Const):
        return Int(int(expr.value))
    return expr.index if isinstance(expr, AsValue) else None


def with_expr(store: Store, expr: Expr) -> Store:
    """The store of an expression made from its own, with the variables that this begins with in its index."""
    index = affine.substitute(store.index, renamed_at_root(store.expr, expr))
    return replace(store, index=index, expr=expr)


def _sum(expr: Call, first: Expr, second: Expr) -> Expr:
    """A sum without the zeros that another zero in it makes idle."""
    if _is_zero(first):
        first, second = second, first
    if not _is_zero(second):
        return expr
    has_zero = _is_zero(first) or (isinstance(first, Call) and first.op == "add" and any(map(_is_zero, first.args)))
    return first if has_zero else replace(expr, args=(first, second))


def _is_zero(expr: Expr) -> bool:
    return isinstance(expr, Const) and expr.value == 0 and math.copysign(1, expr.value) > 0
