"""What the emitter asks of an index: its interval, its stride along a loop, a simpler form, its C text.

    interval(i*8 + j, {i: 4, j: 8}) -> (0, 31)          stride(i*8 + j, "i") -> 8
    simplify((i*8 + j) // 8, {i: 4, j: 8}) -> i         simplify((i*8 + j) % 8, ...) -> j

Sizes are at least 0 and otherwise unknown when they are symbols.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from assay.compiler.ir.loops.index import (
    FloorDiv,
    Index,
    Int,
    Max,
    Min,
    Mod,
    Product,
    Sum,
    Symbol,
    floordiv,
    maximum,
    minimum,
    mod,
)

Extents = Mapping[str, Index]
Interval = tuple[int, int]

UNBOUNDED = 1 << 62
LIMIT = 1 << 31
"""A number of 32 bits is below this, and at least its negative."""


def children(index: Index) -> tuple[Index, ...]:
    match index:
        case Sum(terms):
            return terms
        case Product(factors):
            return factors
        case FloorDiv(a, b) | Mod(a, b) | Min(a, b) | Max(a, b):
            return (a, b)
    return ()


def names(index: Index) -> frozenset[str]:
    """The symbols that the index mentions."""
    if isinstance(index, Symbol):
        return frozenset((index.name,))
    return frozenset().union(*map(names, children(index)))


def walk(index: Index) -> Iterator[Index]:
    yield index
    for child in children(index):
        yield from walk(child)


def rebuild(index: Index, leaf: Callable[[Symbol], Index]) -> Index:
    """The index with each symbol replaced, built again by the simplifying constructors."""
    match index:
        case Symbol():
            return leaf(index)
        case Sum(terms):
            total: Index = Int(0)
            for term in terms:
                total = total + rebuild(term, leaf)
            return total
        case Product(factors):
            product: Index = Int(1)
            for factor in factors:
                product = product * rebuild(factor, leaf)
            return product
        case FloorDiv(a, b):
            return floordiv(rebuild(a, leaf), rebuild(b, leaf))
        case Mod(a, b):
            return mod(rebuild(a, leaf), rebuild(b, leaf))
        case Min(a, b):
            return minimum(rebuild(a, leaf), rebuild(b, leaf))
        case Max(a, b):
            return maximum(rebuild(a, leaf), rebuild(b, leaf))
    return index


def substitute(index: Index, environment: Mapping[str, Index]) -> Index:
    return rebuild(index, lambda symbol: environment.get(symbol.name, symbol))


def _clamp(low: int, high: int) -> Interval:
    return max(low, -UNBOUNDED), min(high, UNBOUNDED)


def interval(index: Index, extents: Extents) -> Interval:
    """Bounds that hold for every value of the loops in `extents`; a bound of +-UNBOUNDED is no bound."""
    if isinstance(index, Int):
        return index.value, index.value
    if isinstance(index, Symbol):
        high = interval(extents[index.name], {})[1] - 1 if index.name in extents else UNBOUNDED
        return _clamp(0, high if high < UNBOUNDED - 1 else UNBOUNDED)
    parts = [interval(child, extents) for child in children(index)]
    return _combine(index, parts)


def is_in_32_bits(values: Interval) -> bool:
    """Whether every value of an interval has 32 bits with a sign."""
    return -LIMIT <= values[0] and values[1] < LIMIT


def _combine(index: Index, parts: list[Interval]) -> Interval:
    match index:
        case Sum():
            return _clamp(sum(p[0] for p in parts), sum(p[1] for p in parts))
        case Product():
            return _product(parts)
        case Min():
            return min(p[0] for p in parts), min(p[1] for p in parts)
        case Max():
            return max(p[0] for p in parts), max(p[1] for p in parts)
        case Mod() if parts[1][0] > 0:
            return 0, parts[1][1] - 1
        case FloorDiv() if parts[1][0] > 0:
            corners = [a // b for a in parts[0] for b in parts[1]]
            return _clamp(min(corners), max(corners))
    return -UNBOUNDED, UNBOUNDED


def _product(parts: list[Interval]) -> Interval:
    low, high = 1, 1
    for part in parts:
        corners = [a * b for a in (low, high) for b in part]
        low, high = _clamp(min(corners), max(corners))
    return low, high


def _split(index: Index, divisor: Index, extents: Extents) -> tuple[Index, Index] | None:
    """`(q, r)` with index = q*divisor + r and 0 <= r < divisor for sure, or None."""
    quotient: Index = Int(0)
    rest: Index = Int(0)
    for term in index.terms if isinstance(index, Sum) else (index,):
        whole = _exact_quotient(term, divisor)
        if whole is None:
            rest = rest + term
        else:
            quotient = quotient + whole
    return (quotient, rest) if _is_below(rest, divisor, extents) else None


def _exact_quotient(term: Index, divisor: Index) -> Index | None:
    """term / divisor where that is exact by its form."""
    factors = term.factors if isinstance(term, Product) else (term,)
    if isinstance(divisor, Int):
        first = factors[0]
        if not isinstance(first, Int) or divisor.value <= 0 or first.value % divisor.value:
            return None
        left: Index = Int(first.value // divisor.value)
        others = factors[1:]
    elif divisor in factors:
        at = factors.index(divisor)
        left, others = Int(1), factors[:at] + factors[at + 1 :]
    else:
        return None
    for factor in others:
        left = left * factor
    return left


def _is_below(rest: Index, divisor: Index, extents: Extents) -> bool:
    if isinstance(rest, Symbol) and extents.get(rest.name) == divisor:
        return True
    low, high = interval(rest, extents)
    return low >= 0 and high < interval(divisor, extents)[0]


def simplify(index: Index, extents: Extents) -> Index:
    """The index without the divisions, remainders and clamps that the extents make needless."""
    match index:
        case Sum(terms):
            total: Index = Int(0)
            for term in terms:
                total = total + simplify(term, extents)
            return total
        case Product(factors):
            product: Index = Int(1)
            for factor in factors:
                product = product * simplify(factor, extents)
            return product
        case FloorDiv(a, b):
            a, b = simplify(a, extents), simplify(b, extents)
            parts = _split(a, b, extents)
            return parts[0] if parts else floordiv(a, b)
        case Mod(a, b):
            a, b = simplify(a, extents), simplify(b, extents)
            parts = _split(a, b, extents)
            return parts[1] if parts else mod(a, b)
        case Min(a, b):
            return _clamped(simplify(a, extents), simplify(b, extents), extents, minimum)
        case Max(a, b):
            return _clamped(simplify(a, extents), simplify(b, extents), extents, maximum)
    return index


def interval_of_gap(gap: Index, extents: Extents) -> Interval:
    """The interval of a difference, in which sizes may cancel: i - n + 1 is at most 0 where i < n."""
    low, high = interval(gap, extents)
    if low > -UNBOUNDED and high < UNBOUNDED:
        return low, high
    ends = [_at_end(gap, extents, is_high) for is_high in (False, True)]
    return (
        max(low, ends[0].value) if isinstance(ends[0], Int) else low,
        min(high, ends[1].value) if isinstance(ends[1], Int) else high,
    )


def _at_end(index: Index, extents: Extents, is_high: bool) -> Index | None:
    """The least or greatest value over the loops of an index that is linear in them, with its sizes."""
    values: dict[str, Index] = {}
    for name in names(index) & extents.keys():
        step = stride(index, name)
        if not isinstance(step, Int):
            return None
        values[name] = extents[name] - 1 if (step.value > 0) == is_high else Int(0)
    return substitute(index, values)


def _clamped(a: Index, b: Index, extents: Extents, choose: Callable[[Index, Index], Index]) -> Index:
    """min(a, b) or max(a, b), decided where the interval of a - b decides it."""
    low, high = interval_of_gap(a - b, extents)
    is_minimum = choose is minimum
    if high <= 0:
        return a if is_minimum else b
    if low >= 0:
        return b if is_minimum else a
    return choose(a, b)


def stride(index: Index, var: str) -> Index | None:
    """The coefficient of `var`, 0 where it does not occur, or None where the index is not linear in it."""
    total: Index = Int(0)
    for term in index.terms if isinstance(index, Sum) else (index,):
        factors = term.factors if isinstance(term, Product) else (term,)
        holding = [f for f in factors if var in names(f)]
        if not holding:
            continue
        if holding != [Symbol(var)]:
            return None
        coefficient: Index = Int(1)
        for factor in factors:
            coefficient = coefficient * (Int(1) if factor == Symbol(var) else factor)
        total = total + coefficient
    return total


def text(index: Index, extents: Extents) -> str:
    """The index as a C expression of type i64."""
    match index:
        case Int(value):
            return str(value) if abs(value) < 2**31 else f"{value}LL"
        case Symbol(name):
            return name
        case Sum(terms):
            return " + ".join(_factor(t, extents) for t in terms).replace("+ -", "- ")
        case Product(factors):
            return "*".join(_factor(f, extents) for f in factors)
        case Min(a, b):
            return f"m::least({text(a, extents)}, {text(b, extents)})"
        case Max(a, b):
            return f"m::greatest({text(a, extents)}, {text(b, extents)})"
    return _division(index, extents)


def _factor(index: Index, extents: Extents) -> str:
    inner = text(index, extents)
    return f"({inner})" if isinstance(index, Sum) else inner


def _division(index: FloorDiv | Mod, extents: Extents) -> str:
    """In 32 bits without a sign where it fits: that vectorises, and a constant divisor becomes a multiplication."""
    low, high = interval(index.a, extents)
    divisor_low, divisor_high = interval(index.b, extents)
    a, b = text(index.a, extents), text(index.b, extents)
    symbol = "/" if isinstance(index, FloorDiv) else "%"
    if low >= 0 and divisor_low > 0:
        kind = "u32" if is_in_32_bits((0, max(high, divisor_high))) else "u64"
        return f"(i64)(({kind})({a}) {symbol} ({kind})({b}))"
    return f"m::{'floordiv_int' if symbol == '/' else 'mod_int'}<i64>({a}, {b})"
