"""Integer index algebra: loop variables, symbolic sizes, and arithmetic on them.

    Index := Int(value) | Symbol(name) | Sum(terms) | Product(factors)
           | FloorDiv(a, b) | Mod(a, b) | Min(a, b) | Max(a, b)

Nodes are immutable and compared by structure; build them with `+ - * // %`, `minimum` and `maximum`, which simplify.
Division and remainder round towards minus infinity.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias


class _Arithmetic:
    __slots__ = ()

    def __add__(self: Index, other: Index | int) -> Index:
        return add(self, as_index(other))

    def __radd__(self: Index, other: int) -> Index:
        return add(as_index(other), self)

    def __sub__(self: Index, other: Index | int) -> Index:
        return add(self, multiply(Int(-1), as_index(other)))

    def __rsub__(self: Index, other: int) -> Index:
        return add(as_index(other), multiply(Int(-1), self))

    def __mul__(self: Index, other: Index | int) -> Index:
        return multiply(self, as_index(other))

    def __rmul__(self: Index, other: int) -> Index:
        return multiply(as_index(other), self)

    def __floordiv__(self: Index, other: Index | int) -> Index:
        return floordiv(self, as_index(other))

    def __mod__(self: Index, other: Index | int) -> Index:
        return mod(self, as_index(other))


@dataclass(frozen=True, slots=True)
class Int(_Arithmetic):
    value: int


@dataclass(frozen=True, slots=True)
class Symbol(_Arithmetic):
    name: str


@dataclass(frozen=True, slots=True)
class Sum(_Arithmetic):
    terms: tuple[Index, ...]


@dataclass(frozen=True, slots=True)
class Product(_Arithmetic):
    factors: tuple[Index, ...]


@dataclass(frozen=True, slots=True)
class FloorDiv(_Arithmetic):
    a: Index
    b: Index


@dataclass(frozen=True, slots=True)
class Mod(_Arithmetic):
    a: Index
    b: Index


@dataclass(frozen=True, slots=True)
class Min(_Arithmetic):
    a: Index
    b: Index


@dataclass(frozen=True, slots=True)
class Max(_Arithmetic):
    a: Index
    b: Index


Index: TypeAlias = Int | Symbol | Sum | Product | FloorDiv | Mod | Min | Max


def as_index(value: Index | int) -> Index:
    return Int(value) if isinstance(value, int) else value


def _split_coefficient(term: Index) -> tuple[int, tuple[Index, ...]]:
    """`3*i*n -> (3, (i, n))`: an integer coefficient and the remaining factors in canonical order."""
    if isinstance(term, Int):
        return term.value, ()
    if isinstance(term, Product):
        if isinstance(term.factors[0], Int):
            return term.factors[0].value, term.factors[1:]
        return 1, term.factors
    return 1, (term,)


def _join(coefficient: int, factors: tuple[Index, ...]) -> Index:
    if coefficient == 0 or not factors:
        return Int(coefficient)
    if coefficient == 1:
        return factors[0] if len(factors) == 1 else Product(factors)
    return Product((Int(coefficient), *factors))


def add(a: Index, b: Index) -> Index:
    """The sum with like terms collected; the integer term comes last."""
    terms: dict[tuple[Index, ...], int] = {}
    for operand in (a, b):
        for term in operand.terms if isinstance(operand, Sum) else (operand,):
            coefficient, factors = _split_coefficient(term)
            terms[factors] = terms.get(factors, 0) + coefficient
    constant = terms.pop((), 0)
    kept = [_join(c, f) for f, c in terms.items() if c != 0]
    if constant != 0 or not kept:
        kept.append(Int(constant))
    return kept[0] if len(kept) == 1 else Sum(tuple(kept))


def multiply(a: Index, b: Index) -> Index:
    """The product, distributed over sums."""
    if isinstance(a, Sum):
        total: Index = Int(0)
        for term in a.terms:
            total = add(total, multiply(term, b))
        return total
    if isinstance(b, Sum):
        return multiply(b, a)
    (ca, fa), (cb, fb) = _split_coefficient(a), _split_coefficient(b)
    return _join(ca * cb, tuple(sorted(fa + fb, key=repr)))


def floordiv(a: Index, b: Index) -> Index:
    if isinstance(a, Int) and isinstance(b, Int):
        return Int(a.value // b.value)
    return a if b == Int(1) else FloorDiv(a, b)


def mod(a: Index, b: Index) -> Index:
    if isinstance(a, Int) and isinstance(b, Int):
        return Int(a.value % b.value)
    return Int(0) if b == Int(1) else Mod(a, b)


def minimum(a: Index, b: Index) -> Index:
    if isinstance(a, Int) and isinstance(b, Int):
        return Int(min(a.value, b.value))
    return a if a == b else Min(a, b)


def maximum(a: Index, b: Index) -> Index:
    if isinstance(a, Int) and isinstance(b, Int):
        return Int(max(a.value, b.value))
    return a if a == b else Max(a, b)
