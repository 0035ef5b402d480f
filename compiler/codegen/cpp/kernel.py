"""Kernel -> C++ function.

    extern "C" void name(f32* y, const f32* x, i64 n)      buffers in order, then symbols

A kernel that checks something returns u64: bit k is set where a check of the k-th of `failures_of(kernel)` failed.

Each nest of the kernel is written in one of two ways. By rows: a reduction runs along its own innermost loop with
`omp simd reduction`, cheap ones of floats `SIDE` terms abreast, and the innermost kernel loop is the simd loop of the
stores. By lanes: a tile of the lane loop runs side by side through the reductions, which keep an array of accumulators.
In both, whatever does not depend on a loop is computed outside of it, and a costly value that two loops of a row need
is kept in a row of scratch.

Sums of float32 run in blocks of at most `BLOCK` terms a lane, added up in float64, so a long sum is at least as exact
as eager's. A reduction over everything is cut into a fixed number of parts, combined in order: the result does not
depend on the number of threads.
"""

from __future__ import annotations

import itertools
import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace

import torch

from assay.compiler.codegen.cpp.accumulators import Accumulator, operator_of, result_of, total_of
from assay.compiler.codegen.cpp.expressions import C_TYPES, call, memory_type
from assay.compiler.codegen.cpp.reductions import (
    ROW_BLOCK,
    SCRATCH_BYTES,
    Reductions,
    is_costly,
    is_small,
    without_reductions,
)
from assay.compiler.codegen.cpp.values import Tile, Writer, names_bound
from assay.compiler.codegen.loops import affine
from assay.compiler.codegen.loops.columns import Cut, cut_beside, cut_of_rows
from assay.compiler.codegen.loops.identifiers import with_identifiers
from assay.compiler.codegen.loops.narrow import narrowed
from assay.compiler.codegen.loops.nest import (
    Nest,
    is_near,
    loops_of,
    middle,
    normalize,
    segments,
)
from assay.compiler.codegen.loops.renamer import Renamer, Variables, subexpressions, with_expr
from assay.compiler.codegen.loops.streaming import LINE, is_beyond_cache, streamed_buffers
from assay.compiler.codegen.loops.vector_width import is_wide
from assay.compiler.ir.loops.failures import failures_of
from assay.compiler.ir.loops.index import Index, Int, Symbol, as_index
from assay.compiler.ir.loops.kernel import (
    AsValue,
    Bind,
    Call,
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
from assay.compiler.machine import number
from assay.compiler.runtime import philox

TURNED = (4, 64)
"""How long rows are that are turned to lie along the lanes of a tile."""

SHORT = 64
"""A simd loop of so many iterations takes less time than a costly value outside of it that is made by itself."""

MOST_ASIDE = 4
"""How many such values are made beforehand."""

LANES = 256
"""Iterations of the lane loop that run side by side."""

LANES_BYTES = 1 << 15
"""The bytes that their totals may take for four times as many to run side by side, where everything is read once. Then
longer runs of neighbours are read from each row of memory. Of 64 MB, sums over rows take 0.92 of the time, norms'
backwards 0.8, scans 0.65.
"""

TILE = 64
"""Side of the square tiles in which a transposing nest runs."""

ACROSS = 64
"""Iterations whose results for the lanes of a tile are put by before they are stored together, each lane's in a row."""

UPDATES = {"accumulate": "add", "multiply": "mul", "maximum": "maximum", "minimum": "minimum"}
"""What joins an update with the element that is there."""

_KEYWORDS = frozenset(
    "alignas alignof and asm auto bool break case catch char class const continue default delete do double else enum "
    "explicit export extern false float for friend goto if inline int long main namespace new not operator or private "
    "protected public register restrict return short signed sizeof static struct switch template this throw true try "
    "typedef typename union unsigned using virtual void volatile while xor m f16 f32 f64 bf16 i8 i16 i32 i64 u8 u32 "
    "u64 bits".split()
)

_OURS = re.compile(
    r"((t|q|acc|nan|total|part_acc|row|square|tile|end|block|line|words|at|span|first|last)\d*)|lane|width|part|failed|[gr]\d+"
)


def identifier(name: str) -> str:
    """The name as C++ can have it, apart from those that the emitter makes."""
    plain = re.sub(r"\W", "_", name)
    return f"{plain}_" if plain in _KEYWORDS or _OURS.fullmatch(plain) or plain[:1].isdigit() else plain


def emit_kernel(kernel: Kernel, is_inner: bool = False) -> str:
    """The C++ function of one kernel; it needs `prelude_of` it before it. One that `is_inner` is called by other C++ of
    the unit, which has shared its work among threads.

    Raises: Unsupported for an operator that C++ has no text for.
    """
    writer = Writer()
    kernel = with_identifiers(kernel, identifier)
    stored = {store.buffer for store in kernel.stores}
    for line in origin_lines(kernel):
        writer.line(line)
    pointers = [f"{'' if b.name in stored else 'const '}{memory_type(b.dtype)}* {b.name}" for b in kernel.buffers]
    arguments = [*pointers, *(f"i64 {symbol}" for symbol in kernel.symbols)]
    variables, nests = normalize(kernel, turns_rows=True)
    failures = failures_of(kernel)
    past = streamed_buffers(kernel)
    streamed = {b.name: memory_type(b.dtype) for b in kernel.buffers if b.name in past}
    result = f"{'WIDE_VECTORS ' if is_wide(nests) else ''}{'u64' if failures else 'void'}"
    linkage = "static" if is_inner else 'extern "C"'
    with writer.block(f"{linkage} {result} {kernel.name}({', '.join(arguments)})"):
        if failures:
            writer.line("u64 failed = 0;")
        emitters = [_Emitter(writer, variables, nest, failures, streamed) for nest in nests]
        for emitter in emitters:
            emitter.is_beyond_cache = is_beyond_cache(kernel)
            emitter.parallel = is_inner
        for first, beside in _in_turn(emitters):
            with writer.block("") if len(nests) > 1 else _nothing():
                first.run() if beside is None else first.run_beside(*beside)
        if failures:
            writer.line("return failed;")
    return writer.text()


def origin_lines(kernel: Kernel) -> list[str]:
    """The comments that a kernel's text begins with: what it was made from."""
    return ["// " + origin.replace("\n", " ").replace("\\", "/") for origin in kernel.origins]


def _in_turn(emitters: Sequence[_Emitter]) -> Iterator[tuple[_Emitter, tuple[_Emitter, Cut] | None]]:
    """The nests in their order, one of them with another that goes through the same rows, where there are such two."""
    for first, other in itertools.permutations(emitters, 2):
        cut = cut_beside(first.nest, other.nest, other.reductions) if first.reductions else None
        if cut is not None and not (first.checks or other.checks or first.scans):
            rest = [emitter for emitter in emitters if emitter not in (first, other)]
            yield from [(first, (other, cut)), *((emitter, None) for emitter in rest)]
            return
    yield from ((emitter, None) for emitter in emitters)


@contextmanager
def _nothing() -> Iterator[None]:
    yield


class _Emitter(Reductions):
    """Writes one nest: its loops around its values and reductions."""

    # ---- kernel loops ----

    def run(self) -> None:
        sizes = dict.fromkeys(b.loop.extent for b in self.bindings if not isinstance(b.loop.extent, Int))
        if not sizes or not self.checks:
            self.level(0)
            return
        is_empty = " | ".join(f"({self.index(size)} < 1)" for size in sizes)
        iterations = " & ".join(f"({self.index(loop.extent)} > 0)" for loop in self.nest.loops)
        with self.writer.block(f"if (({is_empty}) & {iterations or 'true'})"):
            self.writer.line("failed |= 1;  // there is nothing to read at any position")
        with self.writer.block("else"):
            self.level(0)

    def depth_of(self, needed: frozenset[str]) -> int:
        """How many of the loops, from the outermost, must be open for these variables to be bound."""
        loops = self.nest.loops
        return max((at + 1 for at, loop in enumerate(loops) if loop.var in needed), default=0)

    def stores_at(self, depth: int) -> list[Store]:
        loops = self.nest.loops
        return [s for s in self.nest.stores if self.depth_of(loops_of(self.variables, s, loops)) == depth]

    def level(self, depth: int) -> None:
        """What happens inside the first `depth` loops."""
        deeper = [s for d in range(depth, len(self.nest.loops) + 1) for s in self.stores_at(d)]
        roots = [*(store.expr for store in deeper), *(body for _, body in self.taken)]
        if self.tile is not None:
            self._level_of_tile(roots)
        self.hoist(roots)
        stores = self.stores_at(depth)
        if stores and self.tile is not None:
            tile = self.tile
            streamed = self._streamed_along(tile.loop, stores)
            with self._by_lines(streamed, tile.loop, tile.first, tile.capacity, tile.length), self.lanes():
                self.ready(s.expr for s in stores)
                self.store(stores)
        else:
            self.store(stores)
        if depth == len(self.nest.loops):
            for accumulator, body in self.taken:
                place = f"{accumulator.name}[{self.nest.loops[-1].var}]"
                self.writer.line(accumulator.operator.take.format(place, self._taken(accumulator, body)) + ";")
        else:
            if self.tile is not None:
                self._keep_lanes(roots)
            self.descend(depth)

    def _level_of_tile(self, roots: Sequence[Expr]) -> None:
        """The reductions of the tile's lanes that can be computed here."""
        assert self.tile is not None
        self.bound |= {self.tile.loop.var}
        self.reduce(roots)
        self.bound -= {self.tile.loop.var}

    def _keep_lanes(self, roots: Sequence[Expr]) -> None:
        """Makes costly values of the tile's lanes that the loops inside would make in each of their iterations."""
        assert self.tile is not None
        lane = self.tile.loop.var
        self.bound |= {lane}
        found = [expr for expr in self._settled(roots) if lane in self.variables.free(expr) and is_costly(expr)]
        self.bound -= {lane}
        fitting = [expr for expr in found if _is_plain(expr)][:MOST_ASIDE]
        rows = [(expr, self.fresh("kept")) for expr in fitting]
        for expr, row in rows:
            self.writer.line(f"alignas(64) {C_TYPES[expr.dtype]} {row}[{self.tile.capacity}];")
        if rows:
            with self.lanes():
                for expr, row in rows:
                    self.writer.line(f"{row}[lane] = {self.value(expr)};")
        for expr, row in rows:
            self.name(expr, f"{row}[lane]")

    def store(self, stores: Sequence[Store]) -> None:
        values = [self.value(store.expr) for store in stores]
        for store, text in zip(stores, values, strict=True):
            place = self.lines.get(store.buffer) or f"{store.buffer}[{self.index(store.index)}]"
            if store.mode != "write":
                text = self._updated(UPDATES[store.mode], place, text, store.expr.dtype)
            self.writer.line(f"{place} = {text};")

    def _updated(self, op: str, place: str, text: str, dtype: torch.dtype) -> str:
        held = Const(0, dtype)
        present = f"({place} != 0)" if dtype == torch.bool else place
        return call(Call(op, (held, held), dtype), [present, text])

    def descend(self, depth: int) -> None:
        """The next loops, in parallel where nothing outside is."""
        loop = self.nest.loops[depth]
        if loop.var == self.scanned:
            self._descend_scan(depth)
        elif self._is_transposing(depth):
            self._descend_by_squares(depth)
        elif loop.var == self.nest.lane:
            self._descend_by_tile(depth, self._pragma_of(depth, 1))
        elif self._is_leaf(depth):
            self._leaf(depth)
        else:
            self._descend_plain(depth)

    def _is_leaf(self, depth: int) -> bool:
        """Whether the loop is the innermost one and holds no reduction: a simd loop."""
        loops = self.nest.loops
        if depth != len(loops) - 1 or self.tile is not None:
            return False
        return all(self.depth_of(self.variables.free(r)) != len(loops) for r in self.reductions)

    def _leaf(self, depth: int) -> None:
        loop, nest = self.nest.loops[depth], self.nest
        pragma = self._pragma_of(depth, 1, "simd") or "simd"
        is_whole = loop.var in self.ranges or loop.var not in self.apart
        for first, last in [] if is_whole else segments(loop, self.whole.stores):
            self.nest = self._segment(first, last)
            self._leaf_loop(depth, pragma)
        if self.nest is nest:
            self._leaf_in_three(depth, pragma, None if is_whole else middle(loop, self.whole.stores))
        self.nest = nest

    def _leaf_in_three(self, depth: int, pragma: str, inner: tuple[Index, Index] | None) -> None:
        """A loop of symbolic extent, what is between its ends apart."""
        if inner is None:
            self._leaf_loop(depth, pragma)
            return
        nest, ranges, loop = self.nest, self.ranges, self.nest.loops[depth]
        extent = self.index(loop.extent)
        low, high = (self.index(end) for end in inner)
        self.ranges = {**ranges, loop.var: ("0", f"m::least({low}, {extent})")}
        self._leaf_loop(depth, pragma)
        self.ranges = ranges
        self.nest = self._segment(*inner)
        self._leaf_loop(depth, pragma)
        self.nest = nest
        self.ranges = {**ranges, loop.var: (f"m::greatest({high}, m::least({low}, {extent}))", extent)}
        self._leaf_loop(depth, pragma)
        self.ranges = ranges

    def _segment(self, first: Index | int, last: Index | int) -> Nest:
        """The nest for some iterations of its innermost loop, counted from the first of them."""
        nest = self.whole
        loop = Loop(nest.loops[-1].var, as_index(last) - first)
        extents = {**self.extents, loop.var: loop.extent}
        shift = Renamer(self.variables, {loop.var: Symbol(loop.var) + first}, extents)
        stores = tuple(with_expr(replace(s, index=shift.index(s.index)), shift(s.expr)) for s in nest.stores)
        self.loop_names |= names_bound(subexpressions(s.expr for s in stores))
        return narrowed(replace(nest, loops=(*nest.loops[:-1], loop), stores=stores), self.variables)

    def _leaf_loop(self, depth: int, pragma: str) -> None:
        loop = self.nest.loops[depth]
        stores = self._streamed_along(loop, self.stores_at(depth + 1))
        lines, drawn = self._lines_of(loop), self._drawn_along(loop)
        if (stores or drawn) and lines is not None:
            self._leaf_by_lines(depth, pragma, stores, lines, drawn)
            return
        with self._shared_among(pragma if loop.var in self.apart else ""), self.writer.block(self.head(loop)):
            with self.scope(loop):
                self.level(depth + 1)

    def _streamed_along(self, loop: Loop, stores: Sequence[Store]) -> list[Store]:
        """Those of the stores that go past the caches, and walk along the lines of memory."""
        return [s for s in stores if s.buffer in self.streamed and affine.stride(s.index, loop.var) == Int(1)]

    def _lines_of(self, loop: Loop) -> _Lines | None:
        """The runs in which a simd loop is streamed, if its length is known."""
        if loop.var in self.ranges:
            first, last = self.ranges[loop.var]
            length = last.removeprefix(f"{first} + ")
            return _Lines(first, last, last, int(length)) if length.isdigit() else None
        if loop.var not in self.apart or not isinstance(loop.extent, Int) or loop.extent.value < LINE:
            return None
        return _Lines("0", str(loop.extent.value // LINE * LINE), str(loop.extent.value), LINE)

    def _drawn_along(self, loop: Loop) -> list[Call]:
        """The words of Philox of which a loop goes through one after the other: four of them cost as much as one."""
        found = subexpressions(store.expr for store in self.nest.stores)
        return [e for e in found if isinstance(e, Call) and e.op == "philox" and _is_in_a_row(e, loop, self.variables)]

    def _leaf_by_lines(
        self, depth: int, pragma: str, stores: Sequence[Store], lines: _Lines, drawn: Sequence[Call]
    ) -> None:
        """A simd loop whose stores go past the caches, or that draws words, a few lines of memory at a time."""
        loop, ranges = self.nest.loops[depth], self.ranges
        block, length = self.fresh("block"), lines.length
        head = f"for (i64 {block} = {lines.first}; {block} < {lines.end}; {block} += {length})"
        with self._shared_among(_without_simd(pragma)), self.writer.block(head), self.scope():
            for call_of_philox in drawn:
                self._draw_block(call_of_philox, loop, block, length)
            with self._by_lines(stores, loop, block, length, str(length)):
                self.writer.pragma("simd")
                with self.writer.block(f"for (i64 lane = 0; lane < {length}; lane++)"), self.scope(loop):
                    self.writer.line(f"const i64 {loop.var} = {block} + lane;")
                    self.level(depth + 1)
        if lines.end != lines.last:
            self.ranges = {**ranges, loop.var: (lines.end, lines.last)}
            self.writer.pragma("simd")
            with self._parallel(), self.writer.block(self.head(loop)), self.scope(loop):
                self.level(depth + 1)
            self.ranges = ranges

    def _draw_block(self, drawn: Call, loop: Loop, first: str, length: int) -> None:
        """The words of so many iterations from `first` on, which stand for the calls of one each."""
        words, at = self.fresh("words"), self.fresh("at")
        seed, start, position = drawn.args[:3]
        assert isinstance(position, AsValue)
        place = affine.substitute(position.index, {loop.var: Symbol(first)})
        self.writer.line(f"const i64 {at} = {self.index(place)};")
        self.writer.line(f"alignas(64) i32 {words}[{length + 4}];")
        self.writer.line(f"m::philox_block<{length}>({words}, {self.value(seed)}, {self.value(start)}, {at});")
        self.name(drawn, f"{words}[{at} % 4 + lane]")

    @contextmanager
    def _by_lines(self, stores: Sequence[Store], loop: Loop, first: str, capacity: int, length: str) -> Iterator[None]:
        """Lets the stores of a loop over lanes write lines of their own, which are streamed to their place after it."""
        lines = [(store, self.fresh("line")) for store in stores]
        for store, line in lines:
            self.writer.line(f"alignas(64) {self.streamed[store.buffer]} {line}[{capacity}];")
        before = self.lines
        self.lines = {**before, **{store.buffer: f"{line}[lane]" for store, line in lines}}
        yield
        self.lines = before
        for store, line in lines:
            start = affine.substitute(store.index, {loop.var: Symbol(first)})
            self.writer.line(f"m::stream({store.buffer} + {self.index(start)}, {line}, {length});")

    def _descend_scan(self, depth: int) -> None:
        """The loop that carries totals, in order; those that depend on the lane are an array of them."""
        for scan in self.scans:
            total = self.fresh("total")
            kind, start = C_TYPES[scan.dtype], operator_of(scan.op, scan.dtype).start
            if self.tile is not None and self.tile.loop.var in self.variables.free(scan):
                self.totals[scan] = f"{total}[lane]"
                self.writer.line(f"alignas(64) {kind} {total}[{self.tile.capacity}];")
                self.writer.line(f"for (i64 lane = 0; lane < {self.tile.length}; lane++) {total}[lane] = {start};")
            else:
                self.totals[scan] = total
                self.writer.line(f"{kind} {total} = {start};")
        with self._parallel():
            self._nested(depth, 1)

    def _descend_plain(self, depth: int) -> None:
        width = self._width(depth) if not self.parallel else 1
        if self._are_squares_shared(depth, width):
            self._descend_by_squares(depth, width)
            return
        pragma = self._pragma_of(depth, width)
        aside = [] if pragma or width > 1 else self._aside(depth)
        with self._shared_among(pragma):
            self._nested(depth, width, aside)

    def _nested(self, depth: int, width: int, aside: Sequence[tuple[Expr, str]] = ()) -> None:
        loop = self.nest.loops[depth]
        across = self._stored_across(depth)
        if across and not self.lines:
            with self._by_rows(across, loop):
                self._nested(depth, width)
            return
        with self.writer.block(self.head(loop)), self.scope(loop):
            for expr, row in aside:
                self.name(expr, f"{row}[{loop.var}]")
            if width > 1:
                self._nested(depth + 1, width - 1)
            else:
                self.level(depth + 1)

    def _stored_across(self, depth: int) -> list[Store]:
        """The stores of a tile whose neighbours in memory are the results of one lane: by lanes, each would write a
        part of as many lines of memory as there are lanes."""
        if self.tile is None or depth != len(self.nest.loops) - 1:
            return []
        var, lane = self.nest.loops[depth].var, self.tile.loop.var
        stored = Counter(store.buffer for store in self.nest.stores)
        read = {e.buffer for e in subexpressions(s.expr for s in self.nest.stores) if isinstance(e, Load)}

        def is_across(store: Store) -> bool:
            is_alone = store.mode == "write" and stored[store.buffer] == 1 and store.buffer not in read
            step = affine.stride(store.index, lane)
            is_row = affine.stride(store.index, var) == Int(1) and step not in (None, Int(0), Int(1))
            return is_alone and is_row and store.expr.dtype is not torch.bool

        return [store for store in self.stores_at(depth + 1) if is_across(store)]

    @contextmanager
    def _by_rows(self, stores: Sequence[Store], loop: Loop) -> Iterator[None]:
        """A block of the innermost loop whose stores write squares of their own, which are turned to their place."""
        tile = self.tile
        assert tile is not None
        with self._blocks(loop, ACROSS):
            first, last = self.ranges.get(loop.var, ("0", self.index(loop.extent)))
            squares = [(store, self.fresh("square")) for store in stores]
            for store, square in squares:
                kind = C_TYPES[store.expr.dtype]
                self.writer.line(f"alignas(64) {kind} {square}[{ACROSS * tile.capacity}];")
            place = f"[{tile.capacity}*({loop.var} - {first}) + lane]"
            self.lines = {store.buffer: f"{square}{place}" for store, square in squares}
            yield
            self.lines = {}
            for store, square in squares:
                start = affine.substitute(store.index, {loop.var: Symbol(first), tile.loop.var: Symbol(tile.first)})
                step = affine.stride(store.index, tile.loop.var)
                assert step is not None
                to = f"{store.buffer} + {self.index(start)}, {self.index(step)}"
                sizes = f"{tile.length}, {last} - {first}"
                self.writer.line(f"m::transpose({to}, {square}, {tile.capacity}, {sizes});")

    def _aside(self, depth: int) -> list[tuple[Expr, str]]:
        """Costly values that each iteration of a loop needs once, before a short simd loop: made in vectors, in a simd
        loop of their own, where they would be made one by one."""
        if self.tile is not None or depth + 2 != len(self.nest.loops) or not self._is_leaf(depth + 1):
            return []
        loop, leaf = self.nest.loops[depth:]
        if loop.var in self.ranges or not 1 < self._count(loop) or not 0 < self._count(leaf) <= SHORT:
            return []
        if not isinstance(loop.extent, Int) or not isinstance(leaf.extent, Int):
            return []
        roots = [store.expr for d in (depth + 1, depth + 2) for store in self.stores_at(d)]
        with self.scope(loop):
            found = [expr for expr in self._settled(roots) if is_costly(expr) and loop.var in self.variables.free(expr)]
        fitting = [expr for expr in found if self._fits_aside(expr, loop)][:MOST_ASIDE]
        rows = [(expr, self._row(expr, loop)) for expr in fitting]
        if rows:
            self.writer.pragma("simd")
            with self.writer.block(self.head(loop)), self.scope(loop):
                for expr, row in rows:
                    self.writer.line(f"{row}[{loop.var}] = {self.value(expr)};")
        return rows

    def _fits_aside(self, expr: Expr, loop: Loop) -> bool:
        has_reductions = any(isinstance(e, Reduce) for e in subexpressions([expr]))
        return self._count(loop) * expr.dtype.itemsize <= SCRATCH_BYTES and _is_plain(expr) and not has_reductions

    def _width(self, depth: int) -> int:
        """How many loops from here have nothing between them, up to some hundred iterations in all."""
        busy = {self.depth_of(self.variables.free(r)) for r in self.reductions}
        busy |= {self.depth_of(loops_of(self.variables, s, self.nest.loops)) for s in self.nest.stores}
        width, count = 1, self._count(self.nest.loops[depth])
        most = number("collapsed_iterations")
        while count < most and depth + width not in busy and depth + width < len(self.nest.loops):
            loop = self.nest.loops[depth + width]
            if loop.var in (self.nest.lane, self.scanned) or loop.var not in self.apart or self._is_leaf(depth + width):
                break
            if self._is_transposing(depth + width):
                break
            width, count = width + 1, count * self._count(loop)
        return width

    def _count(self, loop: Loop) -> int:
        return loop.extent.value if isinstance(loop.extent, Int) else 1

    @contextmanager
    def _shared_among(self, pragma: str) -> Iterator[None]:
        """The pragma of the loop that is written next, and what threads do at the end of one that they share."""
        if not (self.streamed and pragma.startswith("parallel for")):
            if pragma:
                self.writer.pragma(pragma)
            with self._parallel():
                yield
            return
        shared, condition, size = pragma.partition(" if (")
        self.writer.pragma(f"parallel{condition}{size}")
        with self.writer.block(""), self._parallel():
            self.writer.pragma(f"{shared.removeprefix('parallel ')} nowait")
            yield
            self.writer.line("m::drain();")

    @contextmanager
    def _parallel(self) -> Iterator[None]:
        before = self.parallel
        self.parallel = True
        yield
        self.parallel = before

    def _pragma_of(self, depth: int, width: int, also: str = "") -> str:
        """The `parallel for` of the loops from `depth`, or none where one is open or the work is little."""
        roots = [store.expr for store in self.nest.stores]
        work = self._work(self.nest.loops, roots)
        for loops in {r.loops for r in self.reductions}:
            outer = self.nest.loops[: self.depth_of(self._free_of(loops))]
            work = work + self._work([*outer, *loops], [r.body for r in self.reductions if r.loops == loops])
        own = {loop.var for loop in self.nest.loops[depth : depth + width]}
        if self.parallel or not own <= self.apart or is_small(work):
            return ""
        collapse = f" collapse({width})" if width > 1 else ""
        return f"parallel for {also}".rstrip() + collapse + self._condition(work)

    def _free_of(self, loops: tuple[Loop, ...]) -> frozenset[str]:
        return frozenset().union(*(self.variables.free(r) for r in self.reductions if r.loops == loops))

    def _are_squares_shared(self, depth: int, width: int) -> bool:
        """Whether nothing but some iterations too few to share among threads is around a nest that runs in squares."""
        if self.parallel or not self._is_transposing(depth + width) or self.stores_at(depth + width):
            return False
        around = math.prod(self._count(loop) for loop in self.nest.loops[depth : depth + width])
        return around < number("collapsed_iterations")

    def _is_transposing(self, depth: int) -> bool:
        """Whether the two innermost loops start here and a load walks the outer one contiguously."""
        if depth != len(self.nest.loops) - 2 or self.reductions or self.scans or self.stores_at(depth + 1):
            return False
        if not self.independent or self.nest.lane is not None or self.ranges:
            return False
        pair = self.nest.loops[depth:]
        crossing = self._crossing(*pair)
        shortest = max((_shortest_turned(load.dtype) for load in crossing), default=TILE)
        if any(isinstance(loop.extent, Int) and loop.extent.value < shortest for loop in pair):
            return False
        return bool(crossing)

    def _crossing(self, outer: Loop, inner: Loop) -> list[Load]:
        """The loads that are contiguous along the outer loop and far apart along the inner one."""
        found = []
        for expr in subexpressions(s.expr for s in self.nest.stores):
            if not isinstance(expr, Load) or affine.names(expr.index) & self.variables.positions.keys():
                continue
            if affine.stride(expr.index, outer.var) == Int(1):
                if affine.stride(expr.index, inner.var) not in (Int(0), Int(1)):
                    found.append(expr)
        return found

    def _square(self, load: Load, pair: Sequence[Loop], tiles: Sequence[str], sides: Sequence[int]) -> None:
        """Reads one tile along its lines into a transposed copy, and lets that stand for the load."""
        outer, inner = pair
        square = self.fresh("square")
        place = f"{square}[{outer.var} - {tiles[0]}][{inner.var} - {tiles[1]}]"
        self.writer.line(f"alignas(64) {C_TYPES[load.dtype]} {square}[{sides[0]}][{sides[1]}];")
        step = affine.stride(load.index, inner.var)
        if step is not None and load.dtype != torch.bool:
            first = affine.substitute(load.index, {v.var: Symbol(t) for v, t in zip(pair, tiles, strict=True)})
            sizes = ", ".join("({1}) - {0}".format(*self.ranges[loop.var]) for loop in pair)
            start = f"{load.buffer} + {self.index(first)}, {self.index(step)}"
            self.writer.line(f"m::transpose({square}[0], {sides[1]}, {start}, {sizes});")
        else:
            with self.writer.block(self.head(inner)), self.writer.block(self.head(outer)):
                self.writer.line(f"{place} = {self._text(load)};")
        self.name(load, place)

    def _descend_by_squares(self, depth: int, around: int = 0) -> None:
        """Square tiles; what crosses them is read line by line first, so that each line of memory comes in once.

        The loops `around` them are shared among threads together with the tiles.
        """
        pragma = self._pragma_of(depth, around + 2)
        with self._shared_among(pragma), self._opened(self.nest.loops[depth : depth + around]):
            self._squares(depth + around)

    @contextmanager
    def _opened(self, loops: Sequence[Loop]) -> Iterator[None]:
        with ExitStack() as stack:
            for loop in loops:
                stack.enter_context(self.writer.block(self.head(loop)))
            stack.enter_context(self.scope(*loops))
            yield

    def _squares(self, depth: int) -> None:
        pair = self.nest.loops[depth:]
        crossing, tiles = self._crossing(*pair), [self.fresh("tile") for _ in pair]
        sides = _sides(pair, crossing, self.nest.stores, self._streamed_along(pair[1], self.stores_at(depth + 2)))
        heads = [
            f"for (i64 {tile} = 0; {tile} < {self.index(loop.extent)}; {tile} += {side})"
            for tile, loop, side in zip(tiles, pair, sides, strict=True)
        ]
        if self.is_beyond_cache:
            heads.reverse()  # reads on, along the lines of memory; else writes on: of 4 MB that is 0.12 ms, not 0.21
        with self.writer.block(heads[0]), self.writer.block(heads[1]):
            for tile, loop, side in zip(tiles, pair, sides, strict=True):
                self.ranges = {**self.ranges, loop.var: (tile, self._end_of_tile(tile, loop.extent, side))}
            with self.scope():
                for load in crossing:
                    self._square(load, pair, tiles, sides)
                self._nested(depth, 1)
            self.ranges = {}

    def _end_of_tile(self, tile: str, extent: Index, side: int) -> str:
        """Where a tile ends: a constant from its start, where it can be, is a loop of known length to the compiler."""
        if isinstance(extent, Int) and extent.value % side == 0:
            return f"{tile} + {side}"
        end = self.fresh("end")
        self.writer.line(f"const i64 {end} = m::least({tile} + {side}, {self.index(extent)});")
        return end

    def _descend_by_tile(self, depth: int, pragma: str) -> None:
        loop = self.nest.loops[depth]
        cut = cut_of_rows(self.nest, self.reductions) if pragma else None
        if cut is not None:
            self._descend_by_parts(depth, pragma, cut)
            return
        with self._shared_among(pragma), self._tiles(loop, _lanes(loop.extent, self._most_lanes(depth))):
            self._turn_rows(depth)
            self.level(depth + 1)

    @contextmanager
    def _tiles(self, loop: Loop, lanes: int) -> Iterator[None]:
        """A loop over tiles of so many lanes, with the scope of one of them."""
        extent = self.index(loop.extent)
        with self.writer.block(f"for (i64 tile = 0; tile < {extent}; tile += {lanes})"):
            self.writer.line(f"const i64 width = m::least({lanes}, {extent} - tile);")
            self.tile = Tile(loop, "tile", "width", lanes)
            with self.scope():
                yield
            self.tile = None

    def _descend_by_parts(self, depth: int, pragma: str, cut: Cut) -> None:
        """The rows that are reduced over in parts, each on some thread; then the lanes, which join what parts found."""
        found = self._found(cut)
        self._parts_of_rows(self.nest.loops[depth], cut, found)
        self._join_found(depth, pragma, cut, found)

    def _found(self, cut: Cut) -> list[tuple[Accumulator, str]]:
        """The reductions, each with the name of what parts find for it."""
        accumulators = [self._accumulator(reduce, reduce.loops, True) for reduce in self.reductions]
        found = [(accumulator, f"found_{accumulator.name}") for accumulator in accumulators]
        for accumulator, name in found:
            self.writer.line(f"m::Scratch<{accumulator.wide}> {name}({cut.parts * cut.width});")
        return found

    def _join_found(self, depth: int, pragma: str, cut: Cut, found: Sequence[tuple[Accumulator, str]]) -> None:
        """The lanes, each with what all parts have found for it."""
        loop = self.nest.loops[depth]
        with self._shared_among(pragma), self._tiles(loop, _lanes(loop.extent, LANES)):
            for accumulator, name in found:
                held = total_of(accumulator)
                self._start_lanes(accumulator.wide, held, accumulator, declare=True)
                with self.writer.block(f"for (i64 part = 0; part < {cut.parts}; part++)"):
                    place = f"{name}.at[part*{cut.width} + tile + lane]"
                    self._each_lane(accumulator.operator.take.format(f"{held}[lane]", place))
                self.name(accumulator.reduce, result_of(accumulator, f"{held}[lane]"))
            self.level(depth + 1)

    def _parts_of_rows(self, loop: Loop, cut: Cut, found: Sequence[tuple[Accumulator, str]]) -> None:
        """What each part finds for each lane, in places of its own."""
        first, last = self.fresh("first"), self.fresh("last")
        self.writer.pragma("parallel for")
        with self.writer.block(f"for (i64 part = 0; part < {cut.parts}; part++)"), self.scope(), self._parallel():
            self.writer.line(f"const i64 {first} = m::least(part * {cut.span}, {cut.rows});")
            self.writer.line(f"const i64 {last} = m::least({first} + {cut.span}, {cut.rows});")
            loops, bodies = self._own_loops([accumulator.reduce for accumulator, _ in found])
            self.ranges, self.ahead = {loops[0].var: (first, last)}, cut.ahead
            with self._tiles(loop, cut.lanes):
                self._fill_lanes([(one, body) for (one, _), body in zip(found, bodies, strict=True)], loops)
                for accumulator, name in found:
                    self._each_lane(f"{name}.at[part*{cut.width} + tile + lane] = {total_of(accumulator)}[lane]")
            self.ranges, self.ahead = {}, 0

    # ---- rows and columns of one matrix ----

    def run_beside(self, columns: _Emitter, cut: Cut) -> None:
        """The nest by rows, in parts of them, in which `columns` takes in what it reduces over the same rows; then the
        columns."""
        columns.count = self.count
        row = self.nest.loops[0]
        for emitter in (self, columns):
            emitter.hoist(store.expr for store in emitter.nest.stores)
        found = columns._found(cut)
        first, last = self.fresh("first"), self.fresh("last")
        head = f"for (i64 part = 0; part < {cut.parts}; part++)"
        with self._shared_among("parallel for"), self.writer.block(head), self.scope(), columns.scope():
            self.writer.line(f"const i64 {first} = m::least(part * {cut.span}, {cut.rows});")
            self.writer.line(f"const i64 {last} = m::least({first} + {cut.span}, {cut.rows});")
            for accumulator, _ in found:
                self.writer.line(f"alignas(64) {accumulator.narrow} {accumulator.name}[{cut.width}];")
            if cut.span > ROW_BLOCK:
                columns._each_column(cut, found, "{found} = {start}")
            self.ranges, self.taken = {row.var: (first, last)}, [(one, one.reduce.body) for one, _ in found]
            with self._blocks(row, ROW_BLOCK):
                columns._each_column(cut, found, "{name} = {start}")
                head = self.head(row)
                self.ranges = {}
                with self.writer.block(head), self.scope(row):
                    self.level(1)
                for accumulator, name in found:
                    take = accumulator.operator.take.format("{found}", "{name}")
                    columns._each_column(
                        cut, [(accumulator, name)], take if cut.span > ROW_BLOCK else "{found} = {name}"
                    )
            self.ranges, self.taken = {}, []
        columns._join_found(0, columns._pragma_of(0, 1), cut, found)

    def _each_column(self, cut: Cut, found: Sequence[tuple[Accumulator, str]], text: str) -> None:
        """A statement for each reduction and column: `{name}` is what holds a block, `{found}` what holds a part."""
        var = self.nest.loops[0].var
        for accumulator, name in found:
            places = {"name": f"{accumulator.name}[{var}]", "found": f"{name}.at[part*{cut.width} + {var}]"}
            statement = text.format(**places, start=accumulator.operator.start)
            self.writer.line(f"for (i64 {var} = 0; {var} < {cut.width}; {var}++) {statement};")

    def _most_lanes(self, depth: int) -> int:
        """More lanes than usual where a tile is read in one pass: what is read again should be near until then."""
        inside = [loop.var for loop in self.nest.loops[depth + 1 :]]
        is_once = not inside and len({reduction.loops for reduction in self.reductions}) == 1
        if self.scans:
            is_once = not self.reductions and inside == [self.scanned]
        found = subexpressions(reduction.body for reduction in self.reductions)
        is_short = any(self._row_of(loop.var) for reduction in self.reductions for loop in reduction.loops)
        if not is_once or is_short or any(isinstance(expr, Reduce) for expr in found):
            return LANES
        held = sum(12 if isinstance(total, Reduce) else 8 for total in (*self.reductions, *self.scans))
        return max((k for k in (LANES, 2 * LANES, 4 * LANES) if k * held <= LANES_BYTES), default=LANES)

    def _turn_rows(self, depth: int) -> None:
        """Reads what lies across the lanes of a tile, a short row to each lane, into a copy in which lanes are
        neighbours.

        The copy stands for the loads. Gathered, each load would be an element of its own vector.
        """
        assert self.tile is not None
        tile, turned = self.tile, dict[tuple[str, Index, Index], str]()
        outside = {loop.var for loop in self.nest.loops[: depth + 1]}
        for load in [e for e in subexpressions(s.expr for s in self.nest.stores) if isinstance(e, Load)]:
            inner, step = affine.names(load.index) - outside, affine.stride(load.index, tile.loop.var)
            if len(inner) != 1 or not isinstance(step, Int) or is_near(step) or load.dtype is torch.bool:
                continue
            (var,) = inner
            row = self._row_of(var)
            if row is None or step.value < row or affine.stride(load.index, var) != Int(1):
                continue
            first = affine.substitute(load.index, {var: Int(0), tile.loop.var: Symbol(tile.first)})
            place = turned.setdefault((load.buffer, first, Int(row)), "")
            if not place:
                place = turned[load.buffer, first, Int(row)] = self.fresh("turned")
                self.writer.line(f"alignas(64) {C_TYPES[load.dtype]} {place}[{row * tile.capacity}];")
                start = f"{load.buffer} + {self.index(first)}, {step.value}"
                self.writer.line(f"m::transpose({place}, {tile.capacity}, {start}, {row}, {tile.length});")
            self.name(load, f"{place}[{tile.capacity}*{var} + lane]")

    def _row_of(self, var: str) -> int | None:
        """The iterations of a loop inside the tile, where rows of so many elements are worth turning."""
        inner = [loop for loop in self.nest.loops if loop.var == var]
        inner += [loop for reduction in self.reductions for loop in reduction.loops if loop.var == var]
        extent = inner[0].extent if inner else None
        return extent.value if isinstance(extent, Int) and TURNED[0] <= extent.value <= TURNED[1] else None


@dataclass(frozen=True, slots=True)
class _Lines:
    """A loop from `first` to `last`, of which what is before `end` is whole runs of `length` iterations."""

    first: str
    end: str
    last: str
    length: int


def _shortest_turned(dtype: torch.dtype) -> int:
    """How long a loop is at least that runs in squares: as many elements as a block has that is turned in registers."""
    return TILE if dtype is torch.bool else min(TILE, 64 // dtype.itemsize)


def _sides(
    pair: Sequence[Loop], crossing: Sequence[Load], stores: Sequence[Store], streamed: Sequence[Store]
) -> list[int]:
    """How long a tile is along each of two loops.

    It is a block that is turned in registers where all that is read crosses it, what is written is streamed, and tiles
    are then whole. The rows of the block are lines of memory, written as they come. 64 MB take 2.8 ms then, not 4.4.
    With an operand that is read along those rows, a line of each, they take 9.3 ms instead of 8.0.
    """
    inner = pair[1].var
    along = [e for e in subexpressions(s.expr for s in stores) if isinstance(e, Load) and e not in crossing]
    block = max(_shortest_turned(dtype) for dtype in (*(x.dtype for x in crossing), *(x.expr.dtype for x in streamed)))
    is_whole = all(isinstance(loop.extent, Int) and loop.extent.value % block == 0 for loop in pair)
    if streamed and is_whole and not any(inner in affine.names(load.index) for load in along):
        return [block, block]
    sizes = (loop.extent.value if isinstance(loop.extent, Int) else 0 for loop in pair)
    return [min(TILE, size) or TILE for size in sizes]


def _lanes(extent: Index, most: int) -> int:
    """So many lanes that there are some tiles to share among threads, but no lane fewer than a row of vectors."""
    if not isinstance(extent, Int):
        return most
    fitting = (extent.value // 4 + 63) // 64 * 64
    return min(most, max(64, fitting))


def _is_in_a_row(drawn: Call, loop: Loop, variables: Variables) -> bool:
    """Whether the words of a loop's iterations follow each other, of a key that stays: four of them are one call's."""
    seed, start, position, threads, width = drawn.args
    if not isinstance(position, AsValue) or affine.stride(position.index, loop.var) != Int(1):
        return False
    if loop.var in variables.free(seed) | variables.free(start):
        return False
    given = (threads.value, width.value) if isinstance(threads, Const) and isinstance(width, Const) else None
    return given == (philox.THREADS, philox.LANES)


def _without_simd(pragma: str) -> str:
    return pragma.replace("parallel for simd", "parallel for") if pragma != "simd" else ""


def _is_plain(expr: Expr) -> bool:
    """Whether a value is made of others by operators alone, where reductions and scans have been made before."""
    return not any(isinstance(e, Scan | Bind | Check) for e in without_reductions(expr))
