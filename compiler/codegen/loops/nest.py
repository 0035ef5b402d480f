"""Kernel -> loop nests in the form that the emitter writes down.

    kernel -> normalize -> (Nest, ...)      Nest := loops (outermost first), stores, lane

`normalize` makes equal expressions one object, and spells argmax as a max and a search. It drops loops of extent 1,
splits a loop that is divided by a constant, and joins loops that every access walks as one. A reduction over the
extent of a kernel loop gets that loop's name. What it shares with the stores is then the same expression. A variable
that `Bind` gives a value is named by its position, one name for equal ones, and depends on all that the position does.
The body of a `Scan` is over the loop that it runs along, which is the innermost one of its nest, but for its lanes. A
nest holds stores whose sets of loops are ordered by inclusion, so that each belongs to one depth.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import torch

from assay.compiler.codegen.loops import affine
from assay.compiler.codegen.loops.operators import COSTLY
from assay.compiler.codegen.loops.renamer import (
    Renamer,
    Variables,
    index_of,
    indices,
    operands,
    subexpressions,
    with_expr,
)
from assay.compiler.codegen.loops.unroll import unrolled
from assay.compiler.ir.loops.index import FloorDiv, Index, Int, Max, Min, Mod, Symbol, floordiv
from assay.compiler.ir.loops.kernel import (
    AsValue,
    Bind,
    Call,
    Cast,
    Check,
    Const,
    Expr,
    Kernel,
    Load,
    Loop,
    Reduce,
    Scan,
    Store,
)
from assay.compiler.ir.loops.rewrite import bound_at_root, is_scattered

SMALLEST_SPLIT = 8
"""A loop is split at a divisor at least this long: shorter inner loops cost more than the division."""


@dataclass(frozen=True, slots=True)
class Nest:
    """`loops` outermost first; `lane` is the loop whose iterations run side by side through the reductions, if any."""

    loops: tuple[Loop, ...]
    stores: tuple[Store, ...]
    lane: str | None


def is_never_positive(expr: Expr) -> bool:
    """Whether an interned value is at most 0 or NaN, whatever is read."""
    match expr:
        case Call("neg", (value,)):
            return is_never_negative(value)
        case Call("mul", (Const(factor), value)) | Call("mul", (value, Const(factor))):
            return factor <= 0 and is_never_negative(value)
        case Call("sub", (value, Reduce("max", _, body))):
            return value is body
    return False


def is_never_negative(expr: Expr) -> bool:
    """Whether an interned value is at least 0 or NaN, whatever is read."""
    match expr:
        case Call("mul", (value, other)):
            return value is other
        case Call("abs" | "exp" | "sqrt"):
            return expr.dtype.is_floating_point
    return False


# ---- loops of one level: drop, split, join ----


@dataclass(frozen=True, slots=True)
class _Change:
    """New loops for old, with the old variables in terms of the new."""

    loops: tuple[Loop, ...]
    environment: Mapping[str, Index]


def _drop(loops: Sequence[Loop]) -> _Change | None:
    gone = {loop.var: Int(0) for loop in loops if loop.extent == Int(1)}
    return _Change(tuple(loop for loop in loops if loop.var not in gone), gone) if gone else None


def _split(loops: Sequence[Loop], accesses: Sequence[Index], may_split: Sequence[Loop]) -> _Change | None:
    """One loop as two at a constant that divides it: i -> i_o*q + i_i."""
    for at, loop in enumerate(loops):
        q = _split_point(loop, accesses) if loop in may_split else None
        if q is not None and isinstance(loop.extent, Int):
            outer, inner = Loop(f"{loop.var}_o", Int(loop.extent.value // q)), Loop(f"{loop.var}_i", Int(q))
            value = Symbol(outer.var) * q + Symbol(inner.var)
            return _Change((*loops[:at], outer, inner, *loops[at + 1 :]), {loop.var: value})
    return None


def _split_point(loop: Loop, accesses: Sequence[Index]) -> int | None:
    if not isinstance(loop.extent, Int):
        return None
    points = set()
    for index in accesses:
        for part in affine.walk(index):
            if isinstance(part, FloorDiv | Mod) and isinstance(part.b, Int):
                step = affine.stride(part.a, loop.var)
                if isinstance(step, Int) and step.value > 0 and part.b.value % step.value == 0:
                    points.add(part.b.value // step.value)
    fitting = [q for q in points if SMALLEST_SPLIT <= q < loop.extent.value and loop.extent.value % q == 0]
    return min(fitting, default=None)


def _join(loops: Sequence[Loop], accesses: Sequence[Index], keeps_order: bool = False) -> _Change | None:
    """Two loops as one where every access steps through them as through one; with `keeps_order` only neighbours."""
    pairs = itertools.pairwise(loops) if keeps_order else itertools.permutations(loops, 2)
    for outer, inner in pairs:
        if all(_walks_as_one(index, outer, inner) for index in accesses):
            joined = Loop(f"{outer.var}{inner.var}", outer.extent * inner.extent)
            kept = tuple(joined if loop is inner else loop for loop in loops if loop is not outer)
            return _Change(kept, {outer.var: Int(0), inner.var: Symbol(joined.var)})
    return None


def _walks_as_one(index: Index, outer: Loop, inner: Loop) -> bool:
    by_outer, by_inner = affine.stride(index, outer.var), affine.stride(index, inner.var)
    return by_outer is not None and by_inner is not None and by_outer == by_inner * inner.extent


# ---- normalize ----


class _Normalizer:
    def __init__(self, kernel: Kernel) -> None:
        self.variables = Variables()
        self.kernel = kernel
        self.fresh = itertools.count()
        self.loops: tuple[Loop, ...] = ()
        self.made: dict[tuple[Expr, tuple[Loop, ...] | None], Expr] = {}
        """What reductions have become, each once: it may be in several others, and these in several more. The loops are
        those around it that it depends on."""

    def run(self) -> Kernel:
        kernel = self.kernel
        kernel = self._apply(kernel, _Change(kernel.loops, {}))  # interns and simplifies
        kernel = self._map(kernel, self._expand)
        change = self._next_change(kernel)
        while change is not None:
            kernel = self._apply(kernel, change)
            change = self._next_change(kernel)
        self.loops = kernel.loops
        kernel = unrolled(kernel, self.variables)
        return self._map(kernel, lambda e: self._reductions(e, kernel.loops))

    def _next_change(self, kernel: Kernel) -> _Change | None:
        accesses = [*indices(store.expr for store in kernel.stores), *(store.index for store in kernel.stores)]
        scanned = scanned_loop(kernel.stores)
        whole = tuple(loop for loop in kernel.loops if loop.var != scanned)
        keeps_order = any(map(is_scattered, kernel.stores))
        return (
            _drop(kernel.loops) or _split(kernel.loops, accesses, whole) or _join(kernel.loops, accesses, keeps_order)
        )

    def _apply(self, kernel: Kernel, change: _Change) -> Kernel:
        rename = Renamer(self.variables, change.environment, {loop.var: loop.extent for loop in change.loops})
        stores = tuple(with_expr(replace(s, index=rename.index(s.index)), rename(s.expr)) for s in kernel.stores)
        return replace(kernel, loops=change.loops, stores=stores)

    def _map(self, kernel: Kernel, function: Callable[[Expr], Expr]) -> Kernel:
        return replace(kernel, stores=tuple(with_expr(s, function(s.expr)) for s in kernel.stores))

    def _rebuild(self, expr: Expr, function: Callable[[Expr], Expr], done: dict[Expr, Expr]) -> Expr:
        """`expr` with `function` applied to every outermost reduction."""
        if expr not in done:
            match expr:
                case Reduce():
                    result = function(expr)
                case Call():
                    result = replace(expr, args=tuple(self._rebuild(a, function, done) for a in expr.args))
                case Cast():
                    result = replace(expr, expr=self._rebuild(expr.expr, function, done))
                case Check(inner, condition):
                    inner, condition = (self._rebuild(e, function, done) for e in (inner, condition))
                    result = replace(expr, expr=inner, condition=condition)
                case Bind(_, position, body):
                    position, body = (self._rebuild(e, function, done) for e in (position, body))
                    result = Renamer(self.variables, {}, {}).bind(expr, position, body)
                case Scan():
                    result = replace(expr, body=self._rebuild(expr.body, function, done))
                case _:
                    result = expr
            done[expr] = result
        return done[expr]

    def _expand(self, expr: Expr) -> Expr:
        return self._rebuild(expr, self._expand_one, {})

    def _expand_one(self, expr: Expr) -> Expr:
        """The reduction over loops with names that nothing else has, argmax and argmin spelled out."""
        assert isinstance(expr, Reduce)
        if (expr, None) not in self.made:
            self.made[expr, None] = self._expanded(expr)
        return self.made[expr, None]

    def _expanded(self, expr: Reduce) -> Expr:
        loops = tuple(Loop(f"over{next(self.fresh)}", loop.extent) for loop in expr.loops)
        environment = {old.var: Symbol(new.var) for old, new in zip(expr.loops, loops, strict=True)}
        body = self._expand(Renamer(self.variables, environment, _extents(loops))(expr.body))
        if expr.op in ("argmax", "argmin"):
            return self._position_of_best(expr, loops, body)
        return replace(expr, loops=loops, body=body)

    def _position_of_best(self, expr: Reduce, loops: tuple[Loop, ...], body: Expr) -> Expr:
        """argmax(x) -> min(where(x == max(x) | x != x, position, beyond)): two passes that vectorise."""
        position: Index = Int(0)
        for loop in loops:
            position = position * loop.extent + Symbol(loop.var)
        best = Reduce("max" if expr.op == "argmax" else "min", loops, body, body.dtype)
        hit = Call("eq", (body, best), torch.bool)
        if body.dtype.is_floating_point:
            hit = Call("logical_or", (hit, Call("ne", (body, body), torch.bool)), torch.bool)
        is_small = affine.is_in_32_bits(affine.interval(position, _extents(loops)))
        dtype = torch.int32 if is_small else torch.int64
        here, beyond = AsValue(position, dtype), Const(torch.iinfo(dtype).max, dtype)
        first = Reduce("min", loops, Call("where", (hit, here, beyond), dtype), dtype)
        return first if expr.dtype == dtype else Cast(first, expr.dtype)

    def _reductions(self, expr: Expr, outside: tuple[Loop, ...]) -> Expr:
        return self._rebuild(expr, lambda e: self._reduction(e, outside), {})

    def _reduction(self, expr: Expr, outside: tuple[Loop, ...]) -> Expr:
        """The reduction with its own loops dropped, split, joined and named, its body treated likewise."""
        assert isinstance(expr, Reduce)
        around = tuple(loop for loop in outside if loop.var in self.variables.free(expr))
        if (expr, around) not in self.made:
            self.made[expr, around] = self._named(expr, around)
        return self.made[expr, around]

    def _named(self, expr: Reduce, outside: tuple[Loop, ...]) -> Expr:
        loops, body = expr.loops, expr.body
        around = _extents(outside)
        change = _drop(loops) or self._change_of(loops, body)
        while change is not None:
            loops = change.loops
            body = Renamer(self.variables, change.environment, {**around, **_extents(loops)})(body)
            change = _drop(loops) or self._change_of(loops, body)
        if not loops:
            return self._reductions(self._of_one(expr, body), outside)
        names = self._names(loops, body)
        renamed = tuple(Loop(names[loop.var], loop.extent) for loop in loops)
        environment = {old: Symbol(new) for old, new in names.items()}
        body = Renamer(self.variables, environment, {**around, **_extents(renamed)})(body)
        return Reduce(expr.op, renamed, self._reductions(body, (*outside, *renamed)), expr.dtype)

    def _of_one(self, expr: Reduce, body: Expr) -> Expr:
        if body.dtype == expr.dtype:
            return body
        return Cast(body, expr.dtype)

    def _change_of(self, loops: tuple[Loop, ...], body: Expr) -> _Change | None:
        accesses = indices([body])
        return _split(loops, accesses, loops) or _join(loops, accesses)

    def _names(self, loops: tuple[Loop, ...], body: Expr) -> dict[str, str]:
        """For each loop the name of a kernel loop of its extent that the body does not mention, or one of its own.

        The names depend on nothing around the reduction, so equal reductions get equal names.
        """
        taken = self.variables.free(body)
        shared = [loop for loop in self.loops if loop.var not in taken]
        own = (name for name in map("r{}".format, itertools.count()) if name not in taken)
        names: dict[str, str] = {}
        for loop in loops:
            match = next((c for c in shared if c.extent == loop.extent), None)
            names[loop.var] = match.var if match else next(own)
            shared = [c for c in shared if c is not match]
        return names


def _extents(loops: Iterable[Loop]) -> dict[str, Index]:
    return {loop.var: loop.extent for loop in loops}


def normalize(kernel: Kernel, turns_rows: bool = False) -> tuple[Variables, tuple[Nest, ...]]:
    """The nests of a kernel, in an order in which they may run, and the interner of their expressions. With
    `turns_rows` short rows may be taken side by side that do not lie so: the emitter turns them."""
    normalizer = _Normalizer(kernel)
    plain = normalizer.run()
    variables = normalizer.variables
    return variables, tuple(
        _arrange(variables, plain.loops, stores, turns_rows) for stores in _chains(variables, plain)
    )


# ---- stores to nests ----


def loops_of(variables: Variables, store: Store, loops: Iterable[Loop]) -> frozenset[str]:
    """The loops that a store mentions: it runs once per value of these."""
    if is_scattered(store):
        return frozenset(loop.var for loop in loops)
    mentioned = affine.names(store.index) | variables.free(store.expr)
    return frozenset(loop.var for loop in loops if loop.var in mentioned)


def _chains(variables: Variables, kernel: Kernel) -> list[list[Store]]:
    """The stores in groups whose sets of loops are ordered by inclusion, each with the reductions before too."""
    chains: list[list[Store]] = []
    sets: list[list[frozenset[str]]] = []
    inner: list[set[frozenset[str]]] = []
    outer = {loop.var for loop in kernel.loops}
    by_size = sorted(kernel.stores, key=lambda s: -len(loops_of(variables, s, kernel.loops)))
    for store in by_size:
        mine = loops_of(variables, store, kernel.loops)
        reduced = {variables.free(reduction) & outer for reduction in _outer_reductions([store])}
        for chain, present, around in zip(chains, sets, inner, strict=True):
            if all(mine <= other for other in present) and all(mine <= other or other <= mine for other in around):
                chain.append(store)
                present.append(mine)
                around |= reduced
                break
        else:
            chains.append([store])
            sets.append([mine])
            inner.append(reduced)
    return [[store for store in kernel.stores if any(store is s for s in chain)] for chain in chains]


def _arrange(variables: Variables, loops: tuple[Loop, ...], stores: Sequence[Store], turns_rows: bool) -> Nest:
    """The order of the loops: what is needed by outer stores and reductions first, contiguous accesses innermost."""
    sets = {loops_of(variables, store, loops) for store in stores}
    used = frozenset[str]().union(*sets)
    mine = tuple(loop for loop in loops if loop.var in used)
    scanned = scanned_loop(stores)
    if scanned is not None:
        return _arrange_scan(mine, stores, scanned)
    if any(map(is_scattered, stores)):
        return _arrange_scatter(loops, stores)
    reductions = _outer_reductions(stores)
    inner_sets = {variables.free(reduction) & used for reduction in reductions}
    chained = _lane_of_chain(variables, mine, reductions, stores) if turns_rows else None
    lane = chained or _choose_lane(variables, mine, reductions, stores)
    score = _strides(stores, mine)
    order: list[Loop] = []
    for wanted in sorted(sets, key=len):
        segment = [loop for loop in mine if loop.var in wanted and loop not in order]
        order += _order(_repeated_last(segment, stores), inner_sets, score, lane)
    return Nest(tuple(order), tuple(stores), lane)


def scanned_loop(stores: Sequence[Store]) -> str | None:
    """The loop that the scans in some stores run along, if there are any."""
    found = subexpressions(store.expr for store in stores)
    return next((e.last.name for e in found if isinstance(e, Scan) and isinstance(e.last, Symbol)), None)


def _arrange_scan(loops: tuple[Loop, ...], stores: Sequence[Store], scanned: str) -> Nest:
    """The scanned loop innermost; where another is contiguous, that one in lanes around it."""
    score = _strides(stores, loops)
    best = max(reversed(loops), key=lambda loop: score[loop.var])
    lane = best.var if best.var != scanned else None
    outer = [loop for loop in loops if loop.var not in (lane, scanned)]
    order = (*outer, *(loop for loop in loops if loop.var == lane), *(loop for loop in loops if loop.var == scanned))
    return Nest(order, tuple(stores), lane)


def _arrange_scatter(loops: tuple[Loop, ...], stores: Sequence[Store]) -> Nest:
    """Loops whose iterations may meet in one element in their order; a contiguous one of the others innermost."""
    apart = frozenset.intersection(*(apart_loops(store, loops) for store in stores))
    score = _strides(stores, loops)
    best = max((loop for loop in reversed(loops) if loop.var in apart), key=lambda loop: score[loop.var], default=None)
    inner = [best] if best is not None and score[best.var] >= CONTIGUOUS else []
    outer = [loop for loop in loops if loop.var in apart and loop not in inner]
    meeting = [loop for loop in loops if loop.var not in apart]
    return Nest((*outer, *meeting, *inner), tuple(stores), None)


CONTIGUOUS = 8
"""The score of a loop along which the store is contiguous."""


def apart_loops(store: Store, loops: Sequence[Loop]) -> frozenset[str]:
    """The loops of which no two iterations meet in one element: those that its index counts in places of their own."""
    counted = (*loops, *(binding.loop for binding in bound_at_root(store.expr)))
    steps = [(affine.stride(store.index, loop.var), loop) for loop in counted]
    left = [(step, loop) for step, loop in steps if step != Int(0)]
    span: Index = Int(1)
    while left:
        fitting = [(step, loop) for step, loop in left if step is not None and _is_beyond(step, span)]
        if not fitting:
            return frozenset()
        step, loop = min(fitting, key=lambda pair: pair[0].value if isinstance(pair[0], Int) else 0)
        left.remove((step, loop))
        span = step * loop.extent
    names = {loop.var for loop in loops}
    return frozenset(loop.var for step, loop in steps if step != Int(0) and loop.var in names)


def _is_beyond(step: Index, span: Index) -> bool:
    """Whether a step is at least as long as all that the smaller steps reach."""
    if isinstance(step, Int) and isinstance(span, Int):
        return step.value >= span.value
    return step == span


MOST_SEGMENTS = 4
"""Ranges that a loop is cut into, each of which is code of its own: of more only the longest is set apart."""
GUESSED_EXTENT = 64

NEAR_BYTES = 1 << 20
"""Bytes of an operand that the cache of a core does not hold until it is read again."""

SHORT_ROW = 64
STORED = 4
"""By how many elements that are read one that is stored counts."""

SHORTEST_PEELED = 16
"""A loop is cut where a clamp begins or ends, if that leaves one segment of so many iterations without it."""


def segments(loop: Loop, stores: Sequence[Store]) -> list[tuple[int, int]]:
    """The ranges of a loop between the points at which a `Min` or `Max` of an index, or a comparison, changes sides.

    In the longest one the indices of padded windows, slices and concatenations are linear, and so vectorise. None for
    a loop of symbolic extent.
    """
    if not isinstance(loop.extent, Int):
        return []
    cuts = sorted({c.value for c in _all_cuts(loop, stores) if isinstance(c, Int) and 0 < c.value < loop.extent.value})
    ends = [0, *cuts, loop.extent.value]
    pairs = list(itertools.pairwise(ends))
    longest = max(pairs, key=lambda pair: pair[1] - pair[0])
    if len(pairs) == 1 or longest[1] - longest[0] < SHORTEST_PEELED:
        return [(0, loop.extent.value)]
    if len(pairs) > MOST_SEGMENTS:
        pairs = [(0, longest[0]), longest, (longest[1], loop.extent.value)]
    return [(first, last) for first, last in pairs if first < last]


def middle(loop: Loop, stores: Sequence[Store]) -> tuple[Index, Index] | None:
    """The range of a loop of symbolic extent that is beyond all points near its start and before all near its end, at
    which something changes sides; None where nothing does.
    """
    if isinstance(loop.extent, Int):
        return None
    cuts = _all_cuts(loop, stores)
    low = max((cut.value for cut in cuts if isinstance(cut, Int) and cut.value < SHORTEST_PEELED), default=0)
    behind = [loop.extent - cut for cut in cuts]
    high = max((gap.value for gap in behind if isinstance(gap, Int)), default=0)
    return (Int(max(low, 0)), loop.extent - max(high, 0)) if low > 0 or high > 0 else None


def _all_cuts(loop: Loop, stores: Sequence[Store]) -> set[Index]:
    exprs = subexpressions(store.expr for store in stores)
    found = [*indices(exprs), *(store.index for store in stores)]
    return {cut for index in found for cut in _cuts(index, loop)} | set(_cuts_of_comparisons(exprs, loop))


def _cuts(index: Index, loop: Loop) -> Iterator[Index]:
    """The first iterations in which a clamp in the index takes its other side."""
    for part in affine.walk(index):
        if not isinstance(part, Min | Max):
            continue
        for a, b in itertools.product(_sides(part.a), _sides(part.b)):
            yield from _cut(a - b, loop, isinstance(part, Max))


def _cuts_of_comparisons(exprs: Iterable[Expr], loop: Loop) -> Iterator[Index]:
    for expr in exprs:
        if isinstance(expr, Call) and expr.op in ("lt", "ge"):
            a, b = (index_of(arg) for arg in expr.args)
            if a is not None and b is not None:
                yield from _cut(a - b, loop, True)


def _cut(gap: Index, loop: Loop, counts_zero: bool) -> Iterator[Index]:
    """The first iteration in which a gap, linear in the loop, changes its sign; 0 is positive if it `counts_zero`."""
    step = affine.stride(gap, loop.var)
    rest = gap - step * Symbol(loop.var) if step is not None else gap
    if not isinstance(step, Int) or step.value == 0:
        return
    ahead = rest if step.value > 0 else rest * -1
    is_early, length = counts_zero == (step.value > 0), Int(abs(step.value))
    yield floordiv(ahead, length) * -1 if is_early else floordiv(ahead * -1, length) + 1


def _sides(index: Index) -> list[Index]:
    """What a clamp inside a clamp may be."""
    if isinstance(index, Min | Max):
        return [*_sides(index.a), *_sides(index.b)]
    return [index]


def _outer_reductions(stores: Sequence[Store]) -> list[Reduce]:
    return [e for e in subexpressions(s.expr for s in stores) if isinstance(e, Reduce)]


def _choose_lane(
    variables: Variables, loops: Sequence[Loop], reductions: Sequence[Reduce], stores: Sequence[Store]
) -> str | None:
    """The kernel loop along which most of what reductions read is contiguous, if more is so than along their own.

    What moves with the reduction alone, or not with it, is read again and again and stays near: it does not count. The
    others count by their elements, and what is stored of short rows by several: one by one in distant places it costs
    more than reading it across.
    """
    along: dict[str, int] = {loop.var: 0 for loop in loops}
    own = 0
    outer = {loop.var for loop in loops}
    for reduction in reductions:
        inner = {loop.var for loop in reduction.loops}
        loads = [i for i in indices([reduction.body]) if affine.names(i) & outer and affine.names(i) & inner]
        sizes = [_elements(i, (*loops, *reduction.loops)) for i in loads]
        for i, size in zip(loads, sizes, strict=True):
            own += size * any(is_near(affine.stride(i, loop.var)) for loop in reduction.loops)
            for loop in loops:
                if loop.var in variables.free(reduction):
                    along[loop.var] += size * is_near(affine.stride(i, loop.var))
    if reductions and all(_is_short(reduction) for reduction in reductions):
        for loop in loops:
            if all(loop.var in variables.free(reduction) for reduction in reductions):
                near = (store.index for store in stores if is_near(affine.stride(store.index, loop.var)))
                along[loop.var] += STORED * sum(_elements(index, loops) for index in near)
    best = max(along, key=lambda var: along[var], default=None)
    return best if best is not None and along[best] > own else None


TALL = 4
"""So many reductions, each of which waits for the one before, over a short row. Side by side the rows fill vectors. By
itself each reduction has to be joined across a vector, and what is left of the row goes step by step. Softmaxes of
layer norms of 8 to 40 elements take 0.3 to 0.9 of the time, the two greatest of 8 to 64 elements 0.15 to 0.4."""
WHOLE_VECTORS = 16
SHORTEST_ALONG = 32
"""A longer row that fills vectors is better read along itself, if one as long is stored."""
FEWEST_BESIDE = 16
"""Rows that are worth a tile of lanes."""


def _lane_of_chain(
    variables: Variables, loops: Sequence[Loop], reductions: Sequence[Reduce], stores: Sequence[Store]
) -> str | None:
    """The loop over short rows in which a chain of reductions runs, if it is better taken in lanes than row by row."""
    if not all(map(_is_short, reductions)) or max(_heights(reductions), default=0) < TALL:
        return None
    rows = [loop for loop in loops if all(loop.var in variables.free(reduction) for reduction in reductions)]
    if len(rows) != 1 or (isinstance(rows[0].extent, Int) and rows[0].extent.value < FEWEST_BESIDE):
        return None
    own = {loop for reduction in reductions for loop in reduction.loops}
    lengths = [loop.extent.value for loop in own if isinstance(loop.extent, Int)]
    is_stored = any(affine.names(store.index) & {loop.var for loop in own} for store in stores)
    if is_stored and any(n > SHORTEST_ALONG and n % WHOLE_VECTORS == 0 for n in lengths):
        return None
    return rows[0].var


def _heights(reductions: Sequence[Reduce]) -> list[int]:
    """How many reductions, each of which waits for the one before, each of them is the last of."""
    found: dict[Expr, int] = {}
    for each in subexpressions(reductions):
        below = max((found[operand] for operand in operands(each)), default=0)
        found[each] = below + isinstance(each, Reduce)
    return [found[reduction] for reduction in reductions]


def _repeated_last(loops: Sequence[Loop], stores: Sequence[Store]) -> list[Loop]:
    """The loops in their order, but with those last of which each iteration reads again what no near cache holds.

    So rotary embeddings of 4096 positions read the angles of a position once for all heads, not once a head.
    """
    loads = [e for e in subexpressions(store.expr for store in stores) if isinstance(e, Load)]
    sizes = {load: _elements(load.index, loops) * load.dtype.itemsize for load in loads}

    def repeated(loop: Loop) -> int:
        again = (size for load, size in sizes.items() if loop.var not in affine.names(load.index))
        return sum(size for size in again if size >= NEAR_BYTES)

    return sorted(loops, key=repeated)


def _is_short(reduction: Reduce) -> bool:
    return all(isinstance(loop.extent, Int) and loop.extent.value <= SHORT_ROW for loop in reduction.loops)


def _elements(index: Index, loops: Sequence[Loop]) -> int:
    """How many elements an index reaches, with a guess for sizes that are symbols."""
    names = affine.names(index)
    extents = {loop.var: loop.extent for loop in loops if loop.var in names}
    return math.prod(extent.value if isinstance(extent, Int) else GUESSED_EXTENT for extent in extents.values())


def _strides(stores: Sequence[Store], loops: Sequence[Loop]) -> dict[str, int]:
    """How good each loop is as the innermost: stores count twice, contiguous four times, lanes of complex numbers three
    times, unmoving once."""
    accesses = [*indices(s.expr for s in stores), *(s.index for s in stores), *(s.index for s in stores)]
    points = {Int(1): 4, Int(2): 3, Int(0): 1}
    return {loop.var: sum(points.get(_constant(affine.stride(i, loop.var)), 0) for i in accesses) for loop in loops}


def is_near(step: Index | None) -> bool:
    """Whether a step is to the next element, or the same lane of the next complex one."""
    return step in (Int(1), Int(2))


def _constant(step: Index | None) -> Int:
    return step if isinstance(step, Int) else Int(-1)


def _order(
    loops: Sequence[Loop], sets: Iterable[frozenset[str]], score: Mapping[str, int], lane: str | None
) -> tuple[Loop, ...]:
    """Loops by the smallest set that holds them, then as given but for the best one, which goes last in its set."""
    placed: list[Loop] = []
    for wanted in [*sorted(sets, key=lambda s: (len(s), sorted(s))), frozenset(loop.var for loop in loops)]:
        segment = [loop for loop in loops if loop.var in wanted and loop not in placed]
        if segment:
            last = next((loop for loop in segment if loop.var == lane), None)
            last = last or max(reversed(segment), key=lambda loop: score[loop.var])
            placed += [*(loop for loop in segment if loop is not last), last]
    return tuple(placed)


def cost(roots: Iterable[Expr]) -> int:
    """A rough price of computing the values once: 1 an operator, 8 a costly one."""
    return sum(8 if isinstance(e, Call) and e.op in COSTLY else 1 for e in subexpressions(roots))
