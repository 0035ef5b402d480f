"""Building and rewriting expressions: conversions, calls, substitution, free variables, sizes."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from typing import Any

import torch

from assay.compiler.ir.loops.index import Index, Int, Symbol, substitute, symbols
from assay.compiler.ir.loops.kernel import (
    AsValue,
    Bind,
    Call,
    Cast,
    Check,
    Const,
    Element,
    Expr,
    Load,
    Loop,
    Reduce,
    Scan,
    Store,
)

COMPARISONS = frozenset("eq ne lt le gt ge logical_and logical_or logical_xor logical_not isnan isinf isfinite".split())
NARROW = (torch.bfloat16, torch.float16)
ROUNDED_FIRST = COMPARISONS | frozenset(
    "sign floor ceil trunc round fmod remainder_float floor_div_float argmax argmin sin cos tan".split()
)
"""Whose results depend on the last bit of what they are given: a period is less than that of a large half."""
TRANSCENDENTAL = frozenset(
    "exp exp2 expm1 log log2 log10 log1p sin cos tan asin acos atan atan2 sinh cosh tanh asinh acosh atanh erf erfc"
    " erfcx erfinv gelu gelu_slope ndtri i0 i0e i1 i1e lgamma digamma trigamma zeta hypot sigmoid pow".split()
)


def widened(dtype: torch.dtype) -> torch.dtype:
    """The dtype that arithmetic on values of `dtype` is done in."""
    return torch.float32 if dtype in NARROW else dtype


def constant(value: bool | int | float, dtype: torch.dtype) -> Const:
    """A literal of `dtype`, converted as a cast would convert it."""
    if dtype is torch.bool:
        return Const(bool(value), dtype)
    return Const(float(value) if dtype.is_floating_point else int(value), dtype)


def convert(expr: Expr, dtype: torch.dtype) -> Expr:
    """The value as `dtype`; nothing where it has it already."""
    if expr.dtype is dtype:
        return expr
    if isinstance(expr, Const) and dtype not in NARROW and _is_exact(expr.value, dtype):
        return constant(expr.value, dtype)
    return Cast(expr, dtype)


def without_detour(expr: Expr) -> Expr:
    """`where(c, x, y)` of halves for the same widened and narrowed again, where nothing happens in between."""
    chosen = expr.expr if isinstance(expr, Cast) and expr.dtype in NARROW else None
    if not isinstance(chosen, Call) or chosen.op != "where" or not chosen.dtype.is_floating_point:
        return expr
    condition, *arms = chosen.args
    narrow = [_unwidened(arm, expr.dtype) for arm in arms]
    if any(arm is None for arm in narrow):
        return expr
    return Call("where", (condition, *(arm for arm in narrow if arm is not None)), expr.dtype)


def _unwidened(expr: Expr, dtype: torch.dtype) -> Expr | None:
    if isinstance(expr, Const):
        return constant(expr.value, dtype)
    return expr.expr if isinstance(expr, Cast) and expr.expr.dtype is dtype else None


def _is_exact(value: bool | int | float, dtype: torch.dtype) -> bool:
    return isinstance(value, bool) or dtype.is_floating_point or float(value).is_integer()


def call(op: str, *args: Expr, dtype: torch.dtype | None = None) -> Call:
    """`op(args)`, of the dtype of its arguments, or bool for a comparison."""
    result = dtype or (torch.bool if op in COMPARISONS else args[-1].dtype)
    return Call(op, args, result)


def on_lane(lane: Index, real: Expr, imaginary: Expr) -> Expr:
    """The real or the imaginary part of a complex number."""
    is_real = call("eq", AsValue(lane, torch.int64), constant(0, torch.int64))
    return call("where", is_real, real, imaginary, dtype=real.dtype)


def children(expr: Expr) -> tuple[Expr, ...]:
    """The expressions that an expression is made of directly."""
    parts = _PARTS.get(type(expr))
    return () if parts is None else parts(expr)


_PARTS: Mapping[type[Expr], Callable[[Any], tuple[Expr, ...]]] = {
    Call: lambda expr: expr.args,
    Cast: lambda expr: (expr.expr,),
    Bind: lambda expr: (expr.position, expr.body),
    Check: lambda expr: (expr.expr, expr.condition),
    Reduce: lambda expr: (expr.body,),
    Scan: lambda expr: (expr.body,),
}
"""By the kind of an expression. A walk asks for each expression, so it is looked up and not asked kind by kind."""


def loops_bound_by(expr: Expr) -> tuple[Loop, ...]:
    """The loops whose variables the body of an expression has from it."""
    if isinstance(expr, Bind | Scan):
        return (expr.loop,)
    return expr.loops if isinstance(expr, Reduce) else ()


def bound_at_root(expr: Expr) -> Iterator[Bind]:
    """The bindings that an expression begins with: a store may have their variables in its index."""
    while isinstance(expr, Bind):
        yield expr
        expr = expr.body


def is_scattered(store: Store) -> bool:
    """Whether it is data that says where a store goes."""
    return any(binding.loop.var in symbols(store.index) for binding in bound_at_root(store.expr))


def renamed_at_root(old: Expr, new: Expr) -> dict[str, Index]:
    """What became of the variables that an expression begins with, in the expression made from it, which may begin
    with more of them."""
    before, after = list(bound_at_root(old)), list(bound_at_root(new))
    assert len(before) <= len(after)
    return {was.loop.var: Symbol(now.loop.var) for was, now in zip(before, after, strict=False)}


def indices(expr: Expr) -> tuple[Index, ...]:
    """The indices that stand directly in an expression."""
    if isinstance(expr, Load | AsValue):
        return (expr.index,)
    if isinstance(expr, Scan):
        return (expr.last,)
    return expr.at if isinstance(expr, Element) else ()


def nodes(*roots: Expr) -> list[Expr]:
    """Every distinct expression in the roots, operands before users."""
    found: dict[Expr, None] = {}

    def visit(expr: Expr) -> None:
        if expr not in found:
            for child in children(expr):
                visit(child)
            found[expr] = None

    for root in roots:
        visit(root)
    return list(found)


def map_children(expr: Expr, function: Callable[[Expr], Expr]) -> Expr:
    """The expression with `function` applied to what it is made of."""
    if isinstance(expr, Call):
        args = tuple(function(arg) for arg in expr.args)
        return expr if all(a is b for a, b in zip(args, expr.args, strict=True)) else Call(expr.op, args, expr.dtype)
    if isinstance(expr, Cast):
        inner = function(expr.expr)
        return expr if inner is expr.expr else convert(inner, expr.dtype)
    if isinstance(expr, Reduce):
        body = function(expr.body)
        return expr if body is expr.body else Reduce(expr.op, expr.loops, body, expr.dtype)
    if isinstance(expr, Scan):
        return Scan(expr.op, expr.loop, expr.last, function(expr.body), expr.dtype)
    if isinstance(expr, Bind):
        return Bind(expr.loop, function(expr.position), function(expr.body), expr.dtype)
    if isinstance(expr, Check):
        return Check(function(expr.expr), function(expr.condition), expr.failure, expr.dtype)
    return expr


def map_indices(expr: Expr, function: Callable[[Index], Index]) -> Expr:
    """A leaf with `function` applied to its indices."""
    if isinstance(expr, Load):
        return Load(expr.buffer, function(expr.index), expr.dtype)
    if isinstance(expr, AsValue):
        return AsValue(function(expr.index), expr.dtype)
    if isinstance(expr, Element):
        return Element(expr.tensor, tuple(function(index) for index in expr.at), expr.dtype)
    return expr


class Expansion:
    """Replaces elements by what `lookup` gives for them, None meaning that they stay; with one memo.

    Where an expanded value was rounded only to fit its tensor (`lookup` says so) and is widened again, both
    conversions go.
    """

    __slots__ = ("_lookup", "_memo")

    def __init__(self, lookup: Callable[[Element], tuple[Expr, bool] | None]) -> None:
        self._lookup = lookup
        self._memo: dict[Expr, Expr] = {}

    def __call__(self, expr: Expr) -> Expr:
        made = self._memo.get(expr)
        if made is None:
            made = self._memo[expr] = self._replace(expr)
        return made

    def _replace(self, expr: Expr) -> Expr:
        if isinstance(expr, Element):
            found = self._lookup(expr)
            return expr if found is None else found[0]
        if isinstance(expr, Cast) and isinstance(expr.expr, Element):
            return self._widen(expr, expr.expr)
        return map_children(expr, self)

    def _widen(self, cast: Cast, element: Element) -> Expr:
        found = self._lookup(element)
        if found is None:
            return cast
        value, keeps_rounding = found
        if not keeps_rounding and isinstance(value, Cast) and value.dtype in NARROW and value.expr.dtype is cast.dtype:
            return value.expr
        return convert(value, cast.dtype)


class Substitution:
    """Replaces loop variables in expressions, with one memo for all the expressions it is given."""

    __slots__ = ("_memo", "_ranges", "_values")

    def __init__(self, values: Mapping[str, Index], ranges: MutableMapping[str, Index]) -> None:
        self._values = values
        self._ranges = ChainMap({}, ranges)
        self._memo: dict[Expr, Expr] = {}

    def __call__(self, expr: Expr) -> Expr:
        made = self._memo.get(expr)
        if made is None:
            made = self._memo[expr] = self._replace(expr)
        return made

    def _replace(self, expr: Expr) -> Expr:
        loops = tuple(Loop(loop.var, self._index(loop.extent)) for loop in loops_bound_by(expr))
        self._ranges.maps[0].update({loop.var: loop.extent for loop in loops})
        if isinstance(expr, Reduce):
            return Reduce(expr.op, loops, self(expr.body), expr.dtype)
        if isinstance(expr, Scan):
            return Scan(expr.op, loops[0], self._index(expr.last), self(expr.body), expr.dtype)
        if isinstance(expr, Bind):
            return Bind(loops[0], self(expr.position), self(expr.body), expr.dtype)
        if isinstance(expr, Load | AsValue | Element):
            return map_indices(expr, self._index)
        if isinstance(expr, Call) and expr.op == "where":
            return self._arm_of(expr)
        return map_children(expr, self)

    def _arm_of(self, expr: Call) -> Expr:
        """A choice, or what it chooses where its condition compares an index that is now a number; what is left out
        must check nothing."""
        condition = self(expr.args[0])
        match condition:
            case Call("eq", (AsValue(Int(a)), Const(b))):
                arm, other = expr.args[1:] if a == b else expr.args[:0:-1]
                if not any(isinstance(node, Check) for node in nodes(other)):
                    return self(arm)
        return map_children(expr, self)

    def _index(self, index: Index) -> Index:
        return substitute(index, self._values, self._ranges)


def free_variables(expr: Expr, memo: dict[Expr, frozenset[str]]) -> frozenset[str]:
    """The symbols that an expression depends on, apart from those that it binds."""
    found = memo.get(expr)
    if found is None:
        parts = [free_variables(child, memo) for child in children(expr)] + [symbols(i) for i in indices(expr)]
        bound = loops_bound_by(expr)
        found = frozenset().union(*parts) - {loop.var for loop in bound}
        found = memo[expr] = found.union(*(symbols(loop.extent) for loop in bound))
    return found
