"""Integer index algebra: loop variables, symbolic sizes, and arithmetic on them.

    Index := Int(value) | Symbol(name) | Sum(terms) | Product(factors)
           | FloorDiv(a, b) | Mod(a, b) | Min(a, b) | Max(a, b)

Nodes are immutable and interned (equal means identical); build them with `+ - * // %`, `minimum` and `maximum`,
which simplify. Division and remainder round towards minus infinity, and divisors are positive. `simplify` knows the
ranges of loop variables as well: `(i*8 + j) // 8 -> i` for `0 <= j < 8`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeAlias, cast

from assay.compiler.ir.loops.intern import Shared


class _Arithmetic(Shared):
    __slots__ = ()

    def __add__(self, other: Index | int) -> Index:
        return add(_index(self), as_index(other))

    def __radd__(self, other: int) -> Index:
        return add(as_index(other), _index(self))

    def __sub__(self, other: Index | int) -> Index:
        return add(_index(self), multiply(Int(-1), as_index(other)))

    def __rsub__(self, other: int) -> Index:
        return add(as_index(other), multiply(Int(-1), _index(self)))

    def __mul__(self, other: Index | int) -> Index:
        return multiply(_index(self), as_index(other))

    def __rmul__(self, other: int) -> Index:
        return multiply(as_index(other), _index(self))

    def __floordiv__(self, other: Index | int) -> Index:
        return floordiv(_index(self), as_index(other))

    def __mod__(self, other: Index | int) -> Index:
        return mod(_index(self), as_index(other))


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class Int(_Arithmetic):
    value: int


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class Symbol(_Arithmetic):
    name: str


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class Sum(_Arithmetic):
    terms: tuple[Index, ...]


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class Product(_Arithmetic):
    factors: tuple[Index, ...]


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class FloorDiv(_Arithmetic):
    a: Index
    b: Index


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class Mod(_Arithmetic):
    a: Index
    b: Index


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class Min(_Arithmetic):
    a: Index
    b: Index


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class Max(_Arithmetic):
    a: Index
    b: Index


Index: TypeAlias = Int | Symbol | Sum | Product | FloorDiv | Mod | Min | Max
Ranges: TypeAlias = Mapping[str, Index]
"""The extent of each loop variable: `0 <= variable < extent`. A symbol without a range is a size, at least 0."""

ZERO = Int(0)
ONE = Int(1)


def _index(value: _Arithmetic) -> Index:
    """The subclasses of `_Arithmetic` are exactly the kinds of index."""
    return cast(Index, value)


def as_index(value: Index | int) -> Index:
    return Int(value) if isinstance(value, int) else value


# ---- sums and products -----------------------------------------------------------------------------------------


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


def terms_of(index: Index) -> tuple[Index, ...]:
    """The summands of an index."""
    return index.terms if isinstance(index, Sum) else (index,)


@lru_cache(maxsize=1 << 14)
def add(a: Index, b: Index) -> Index:
    """The sum with like terms collected and `s*b*(a//b) + s*(a%b)` made `s*a`; the integer term comes last."""
    terms: dict[tuple[Index, ...], int] = {}
    for operand in (a, b):
        for term in terms_of(operand):
            coefficient, factors = _split_coefficient(term)
            terms[factors] = terms.get(factors, 0) + coefficient
    constant = terms.pop((), 0)
    kept = [_join(c, f) for f, c in terms.items() if c != 0]
    if any(isinstance(factor, Mod) for term in kept for factor in _split_coefficient(term)[1]):
        recombined = _recombine(kept)
        if recombined is not None:
            return add(recombined, Int(constant))
    if constant != 0 or not kept:
        kept.append(Int(constant))
    return kept[0] if len(kept) == 1 else Sum(tuple(kept))


def _recombine(terms: list[Index]) -> Index | None:
    """One step of `s*b*(a//b) + s*(a%b) -> s*a`, or None where no two terms fit."""
    present = set(terms)
    for term in terms:
        coefficient, factors = _split_coefficient(term)
        for position, factor in enumerate(factors):
            if not isinstance(factor, Mod):
                continue
            scale = _join(coefficient, factors[:position] + factors[position + 1 :])
            partner = multiply(multiply(scale, factor.b), floordiv(factor.a, factor.b))
            if partner in present and partner is not term:
                rest = [t for t in terms if t is not term and t is not partner]
                return total([*rest, multiply(scale, factor.a)])
    return None


def total(terms: list[Index]) -> Index:
    """The sum of many."""
    result: Index = ZERO
    for term in terms:
        result = add(result, term)
    return result


def product(factors: tuple[Index, ...]) -> Index:
    """The product of many, such as the number of elements of a shape."""
    result: Index = ONE
    for factor in factors:
        result = multiply(result, factor)
    return result


@lru_cache(maxsize=4096)
def _order(index: Index) -> str:
    return repr(index)


@lru_cache(maxsize=1 << 14)
def multiply(a: Index, b: Index) -> Index:
    """The product, distributed over sums."""
    if isinstance(a, Sum):
        return total([multiply(term, b) for term in a.terms])
    if isinstance(b, Sum):
        return multiply(b, a)
    (ca, fa), (cb, fb) = _split_coefficient(a), _split_coefficient(b)
    return _join(ca * cb, tuple(sorted(fa + fb, key=_order)) if fa and fb else fa + fb)


# ---- division, remainder, bounds ---------------------------------------------------------------------------------


def divide_exactly(term: Index, divisor: Index) -> Index | None:
    """`term / divisor` where every factor of the divisor is one of the term, else None."""
    (ct, ft), (cd, fd) = _split_coefficient(term), _split_coefficient(divisor)
    if isinstance(divisor, Sum) or cd == 0 or ct % cd != 0:
        return None
    left = list(ft)
    for factor in fd:
        if factor not in left:
            return None
        left.remove(factor)
    return _join(ct // cd, tuple(left))


def _split_multiple(index: Index, divisor: Index) -> tuple[Index, Index]:
    """`index = divisor * quotient + rest`, with every term that the divisor divides in the quotient."""
    quotient: list[Index] = []
    rest: list[Index] = []
    for term in terms_of(index):
        exact = divide_exactly(term, divisor)
        if exact is not None:
            quotient.append(exact)
        elif isinstance(term, Int) and isinstance(divisor, Int):
            quotient.append(Int(term.value // divisor.value))
            rest.append(Int(term.value % divisor.value))
        else:
            rest.append(term)
    return total(quotient), total(rest)


def floordiv(a: Index, b: Index, ranges: Ranges | None = None) -> Index:
    """`(b*q + r) // b -> q + r//b`, and `r//b -> 0` where `0 <= r < b` is known."""
    if isinstance(b, Int) and b.value == 1:
        return a
    quotient, rest = _split_multiple(a, b)
    if is_within(rest, b, ranges):
        return quotient
    return add(quotient, _floordiv_rest(rest, b, ranges))


def _floordiv_rest(rest: Index, b: Index, ranges: Ranges | None) -> Index:
    if isinstance(rest, FloorDiv):
        return floordiv(rest.a, multiply(rest.b, b), ranges)
    if isinstance(rest, Mod):
        cofactor = divide_exactly(rest.b, b)
        if cofactor is not None:
            return mod(floordiv(rest.a, b, ranges), cofactor, ranges)
    if isinstance(b, Int):
        common = _common_factor(rest, b.value, ranges)
        if common > 1:
            return floordiv(_split_multiple(rest, Int(common))[0], Int(b.value // common), ranges)
    return FloorDiv(rest, b)


def _common_factor(index: Index, divisor: int, ranges: Ranges | None) -> int:
    """A `g > 1` dividing `divisor` with `index = g*q + r`, `0 <= r < g`; 1 where there is none.

    Then `index // divisor` is `q // (divisor/g)`.
    """
    coefficients = {abs(_split_coefficient(term)[0]) for term in terms_of(index)}
    for candidate in sorted({math.gcd(c, divisor) for c in coefficients}, reverse=True):
        if 1 < candidate < divisor and is_within(_split_multiple(index, Int(candidate))[1], Int(candidate), ranges):
            return candidate
    return 1


def mod(a: Index, b: Index, ranges: Ranges | None = None) -> Index:
    """`(b*q + r) % b -> r % b`, and `r % b -> r` where `0 <= r < b` is known."""
    if isinstance(b, Int) and b.value == 1:
        return ZERO
    rest = _split_multiple(a, b)[1]
    if is_within(rest, b, ranges):
        return rest
    if isinstance(rest, Mod) and divide_exactly(rest.b, b) is not None:
        return mod(rest.a, b, ranges)
    if isinstance(b, Int):
        common = _common_factor(rest, b.value, ranges)
        if common > 1:
            quotient, small = _split_multiple(rest, Int(common))
            return add(multiply(Int(common), mod(quotient, Int(b.value // common), ranges)), small)
    return Mod(rest, b)


def is_nonnegative(index: Index) -> bool:
    """Whether every term of an index over sizes only has a coefficient of at least 0."""
    return all(_split_coefficient(term)[0] >= 0 for term in terms_of(index))


def is_within(index: Index, extent: Index, ranges: Ranges | None) -> bool:
    """Whether `0 <= index < extent` follows from the ranges."""
    if isinstance(index, Int) and isinstance(extent, Int):
        return 0 <= index.value < extent.value
    if ranges is None:
        return False
    low, high = bounds(index, ranges)
    return low is not None and high is not None and is_nonnegative(low) and is_nonnegative(extent - 1 - high)


Bounds: TypeAlias = tuple[Index | None, Index | None]


def bounds(index: Index, ranges: Ranges) -> Bounds:
    """A lower and an upper bound over sizes only; None where none was found."""
    if isinstance(index, Int):
        return index, index
    if isinstance(index, Symbol):
        extent = ranges.get(index.name)
        return (index, index) if extent is None else (ZERO, extent - 1)
    if isinstance(index, Sum):
        pairs = [bounds(term, ranges) for term in index.terms]
        return _total([low for low, _ in pairs]), _total([high for _, high in pairs])
    if isinstance(index, Product):
        return _bounds_of_product(index, ranges)
    return _bounds_of_division(index, ranges)


def _total(terms: list[Index | None]) -> Index | None:
    known = [term for term in terms if term is not None]
    return total(known) if len(known) == len(terms) else None


def _bounds_of_product(index: Product, ranges: Ranges) -> Bounds:
    coefficient, factors = _split_coefficient(index)
    low, high = ONE, ONE  # type: Index, Index
    for factor in factors:
        below, above = bounds(factor, ranges)
        if below is None or above is None or not is_nonnegative(below):
            return None, None
        low, high = multiply(low, below), multiply(high, above)
    pair = multiply(Int(coefficient), low), multiply(Int(coefficient), high)
    return pair if coefficient >= 0 else (pair[1], pair[0])


def _bounds_of_division(index: FloorDiv | Mod | Min | Max, ranges: Ranges) -> Bounds:
    low, high = bounds(index.a, ranges)
    if isinstance(index, Mod):
        return ZERO, index.b - 1
    if isinstance(index, FloorDiv):
        if low is None or high is None or not is_nonnegative(low):
            return None, None
        return ZERO, floordiv(high, index.b)
    low_b, high_b = bounds(index.b, ranges)
    if isinstance(index, Min):
        return _pick(low, low_b, minimum), high_b if high is None or isinstance(high_b, Int) else high
    return low_b if low is None or isinstance(low_b, Int) else low, _pick(high, high_b, maximum)


def _pick(a: Index | None, b: Index | None, choose: Callable[[Index, Index], Index]) -> Index | None:
    return choose(a, b) if isinstance(a, Int) and isinstance(b, Int) else None


def _is_at_most(a: Index, b: Index, ranges: Ranges | None) -> bool:
    if isinstance(a, Int) and isinstance(b, Int):
        return a.value <= b.value
    if ranges is None:
        return a is b
    low = bounds(b - a, ranges)[0]
    return low is not None and is_nonnegative(low)


def minimum(a: Index, b: Index, ranges: Ranges | None = None) -> Index:
    if _is_at_most(a, b, ranges):
        return a
    return b if _is_at_most(b, a, ranges) else Min(a, b)


def maximum(a: Index, b: Index, ranges: Ranges | None = None) -> Index:
    if _is_at_most(a, b, ranges):
        return b
    return a if _is_at_most(b, a, ranges) else Max(a, b)


# ---- rewriting -----------------------------------------------------------------------------------------------------


def simplify(index: Index, ranges: Ranges) -> Index:
    """The same function of the loop variables, in fewer operations."""
    return rebuild(index, ranges, None)


def substitute(index: Index, values: Mapping[str, Index], ranges: Ranges | None = None) -> Index:
    """The index with its symbols replaced, all at once; simplified under the ranges of the symbols that result."""
    return rebuild(index, ranges, values)


def rebuild(index: Index, ranges: Ranges | None, values: Mapping[str, Index] | None) -> Index:
    """Builds the index again from its leaves."""
    if isinstance(index, Int):
        return index
    if isinstance(index, Symbol):
        return index if values is None else values.get(index.name, index)
    if isinstance(index, Sum):
        return total([rebuild(term, ranges, values) for term in index.terms])
    if isinstance(index, Product):
        return product(tuple(rebuild(factor, ranges, values) for factor in index.factors))
    a, b = rebuild(index.a, ranges, values), rebuild(index.b, ranges, values)
    return _BINARY[type(index)](a, b, ranges)


_BINARY: dict[type, Callable[[Index, Index, Ranges | None], Index]] = {
    FloorDiv: floordiv,
    Mod: mod,
    Min: minimum,
    Max: maximum,
}


@lru_cache(maxsize=1 << 16)
def symbols(index: Index) -> frozenset[str]:
    """The names of the loop variables and sizes in an index."""
    if isinstance(index, Int):
        return frozenset()
    if isinstance(index, Symbol):
        return frozenset((index.name,))
    return frozenset().union(*(symbols(part) for part in operands(index)))


def operands(index: Index) -> tuple[Index, ...]:
    """The indices that an index is made of directly."""
    if isinstance(index, Sum):
        return index.terms
    if isinstance(index, Product):
        return index.factors
    return (index.a, index.b) if isinstance(index, FloorDiv | Mod | Min | Max) else ()


def evaluate(index: Index, values: Mapping[str, int]) -> int:
    """The number that an index stands for."""
    if isinstance(index, Int):
        return index.value
    if isinstance(index, Symbol):
        return values[index.name]
    parts = [evaluate(part, values) for part in operands(index)]
    return _NUMBERS[type(index)](parts)


_NUMBERS: dict[type, Callable[[list[int]], int]] = {
    Sum: sum,
    Product: math.prod,
    FloorDiv: lambda parts: parts[0] // parts[1],
    Mod: lambda parts: parts[0] % parts[1],
    Min: min,
    Max: max,
}


def coefficient(index: Index, variable: str) -> Index | None:
    """`c` where `index = c*variable + rest` and neither mentions the variable; None where it is not linear."""
    found: Index = ZERO
    for term in terms_of(index):
        if variable not in symbols(term):
            continue
        scale = divide_exactly(term, Symbol(variable))
        if scale is None or variable in symbols(scale):
            return None
        found = add(found, scale)
    return found
