"""Integer values of 64 bits that are proven to be small, in 32 bits.

    (f32)(i64(j) - i64(i))  ->  (f32)(i32(j) - i32(i))        for i and j below 1024
    i64(j) <= i64(i)        ->  i32(j) <= i32(i)

A value that is compared, or converted to another type, is computed in 32 bits if that is proven right. The intervals
of everything that it is made of, over all loops, have to stay below 2**31. The range of a size that is a symbol is not
known, so what depends on one stays in 64 bits. So does what is data in 64 bits.

The time in 64 bits over that in 32 bits, as measured (AVX-512, GCC 12, kernels that fit the cache):

- the values here: 1.0 to 1.4, since a vector holds twice as many
- a quotient of two indices (`affine.text`): 0.9 to 1.2
- the positions of a lookup: 0.93
- loop variables, and with them addresses: 0.2 to 0.6

Under -fwrapv an address computed in 32 bits may wrap, and what may wrap is not known to be contiguous. So loop
variables and addresses have 64 bits.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import torch

from assay.compiler.codegen.loops import affine
from assay.compiler.codegen.loops.affine import Interval
from assay.compiler.codegen.loops.nest import Nest
from assay.compiler.codegen.loops.renamer import Renamer, Variables, with_expr
from assay.compiler.ir.loops.index import Index
from assay.compiler.ir.loops.kernel import AsValue, Bind, Call, Cast, Const, Expr, Reduce
from assay.compiler.ir.loops.rewrite import map_children

COMPARED = frozenset(("eq", "ne", "lt", "le", "gt", "ge"))
SMALL = (torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32)


def narrowed(nest: Nest, variables: Variables) -> Nest:
    """The nest with what is proven to be small in 32 bits."""
    narrow = Narrower(variables, {loop.var: loop.extent for loop in nest.loops})
    return replace(nest, stores=tuple(with_expr(store, narrow(store.expr)) for store in nest.stores))


class Narrower:
    """Rewrites expressions over loops of these extents; in a reduction that binds `bound`, `around` is what rewrites
    outside of it."""

    def __init__(
        self,
        variables: Variables,
        extents: Mapping[str, Index],
        around: Narrower | None = None,
        bound: frozenset[str] = frozenset(),
    ) -> None:
        self.variables, self.extents, self.around, self.bound = variables, extents, around, bound
        self.done: dict[Expr, Expr] = {}
        self.ranges: dict[Expr, Interval | None] = {}

    def __call__(self, expr: Expr) -> Expr:
        if self.around is not None and isinstance(expr, Reduce) and not self.variables.free(expr) & self.bound:
            return self.around(expr)  # once for all reductions that it is in
        if expr not in self.done:
            self.done[expr] = self._rewritten(expr)
        return self.done[expr]

    def _rewritten(self, expr: Expr) -> Expr:
        match expr:
            case Call(op, args) if op in COMPARED and all(map(self._is_small, args)):
                return replace(expr, args=tuple(map(self._small, args)))
            case Cast(inner, dtype) if dtype is not torch.int64 and self._is_small(inner):
                return replace(expr, expr=self._small(inner))
            case Reduce(_, loops):
                own = {loop.var: loop.extent for loop in loops}
                inside = Narrower(self.variables, {**self.extents, **own}, self, frozenset(own))
                return replace(expr, body=inside(expr.body))
            case Bind(_, position, body):
                bound = Renamer(self.variables, {}, self.extents).bind(expr, self(position), body)
                inside = Narrower(self.variables, {**self.extents, bound.loop.var: bound.loop.extent})
                return replace(bound, body=inside(bound.body))
        return map_children(expr, self)

    def _is_small(self, expr: Expr) -> bool:
        return expr.dtype is torch.int64 and self.interval(expr) is not None

    def _small(self, expr: Expr) -> Expr:
        """A value of `interval`, in 32 bits."""
        match expr:
            case AsValue() | Const():
                return replace(expr, dtype=torch.int32)
            case Cast(inner):
                return Cast(self(inner), torch.int32)
            case Call("where", (condition, *arms)):
                chosen = (self(condition), *map(self._small, arms))
                return replace(expr, args=chosen, dtype=torch.int32)
        assert isinstance(expr, Call)
        return replace(expr, args=tuple(map(self._small, expr.args)), dtype=torch.int32)

    def interval(self, expr: Expr) -> Interval | None:
        """Bounds of an integer value; None where it, or what it is computed from, may not fit 32 bits."""
        if expr not in self.ranges:
            found = self._interval(expr)
            self.ranges[expr] = found if found is not None and affine.is_in_32_bits(found) else None
        return self.ranges[expr]

    def _interval(self, expr: Expr) -> Interval | None:
        match expr:
            case Const(value) if isinstance(value, int):
                return int(value), int(value)
            case AsValue(index):
                return affine.interval(index, self.extents)
            case Cast(inner) if inner.dtype in SMALL:
                return _all_of(inner.dtype)
            case Call(op, args):
                parts = [self.interval(arg) for arg in (args[1:] if op == "where" else args)]
                known = [part for part in parts if part is not None]
                return _interval_of(op, known) if len(known) == len(parts) else None
        return None


def _all_of(dtype: torch.dtype) -> Interval:
    """The values of an integer type."""
    return (0, 1) if dtype is torch.bool else (torch.iinfo(dtype).min, torch.iinfo(dtype).max)


def _interval_of(op: str, parts: list[Interval]) -> Interval | None:
    """The interval of one operator over integers; None for one that has no bounds here."""
    lows, highs = [low for low, _ in parts], [high for _, high in parts]
    match op:
        case "add":
            return sum(lows), sum(highs)
        case "sub":
            return lows[0] - highs[1], highs[0] - lows[1]
        case "neg":
            return -highs[0], -lows[0]
        case "mul":
            corners = [a * b for a in parts[0] for b in parts[1]]
            return min(corners), max(corners)
        case "maximum":
            return max(lows), max(highs)
        case "minimum":
            return min(lows), min(highs)
        case "where":
            return min(lows), max(highs)
        case "abs":
            return max(0, lows[0], -highs[0]), max(-lows[0], highs[0])
        case "floordiv_int" if lows[1] > 0:
            corners = [a // b for a in parts[0] for b in parts[1]]
            return min(corners), max(corners)
        case "mod_int" if lows[1] > 0:
            return 0, highs[1] - 1
    return None
