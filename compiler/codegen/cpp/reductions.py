"""Reductions of a nest in C++: along a row, in blocks that are added up wider, by lanes, or in parts of everything."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

import torch

from assay.compiler.codegen.cpp.accumulators import Accumulator, dtype_of, operator_of, result_of, simd_over, total_of
from assay.compiler.codegen.cpp.expressions import C_TYPES, cast, constant
from assay.compiler.codegen.cpp.values import Values, names_bound
from assay.compiler.codegen.loops import affine
from assay.compiler.codegen.loops.nest import (
    cost,
    is_near,
)
from assay.compiler.codegen.loops.operators import COSTLY, HALVES
from assay.compiler.codegen.loops.renamer import Renamer, operands, subexpressions
from assay.compiler.ir.loops.index import Index, Int, Symbol
from assay.compiler.ir.loops.kernel import Call, Const, Expr, Load, Loop, Reduce
from assay.compiler.machine import number

PARALLEL_WORK = 1 << 16
"""Operator evaluations below which a loop stays on one thread: starting the others costs about 5 microseconds."""

PARTS = 64
"""Into how many parts a reduction over everything is cut, whatever the number of threads."""

BLOCK = 512
"""Terms of a float32 sum that are added up in float32 before they go to the float64 total."""

ROW_BLOCK = 64
"""The same for a reduction by lanes, where a lane adds its terms one after the other."""

SIDE = 64
"""A cheap reduction of floats along a row takes so many terms in side by side, an accumulator for each: in one vector
every addition would wait for the one before."""

LANES_BESIDE_BYTES = 8
"""Steps at once of a sum of floats that reads bytes. A C++ compiler takes as many as a vector has bytes, and then adds
up that many lanes one after the other: a row of 64 floats was summed in sequence."""

SIDE_BLOCK = 2048
"""`BLOCK` for such a reduction: as few terms a lane."""

SCRATCH_BYTES = 1 << 17
"""The longest row of scratch, which is on the stack."""


class Reductions(Values):
    """Adds to the values of a nest how its reductions are made."""

    # ---- reductions ----

    def reduce(self, roots: Iterable[Expr]) -> None:
        """Writes every reduction under the roots that can be computed here, those over equal loops together."""
        roots = list(roots)
        stages = self._stages(roots)
        for stage in sorted({level for level, _ in stages.values()}):
            groups: dict[tuple[Loop, ...], list[Reduce]] = {}
            for level, expr in stages.values():
                if level == stage and self.known(expr) is None:
                    groups.setdefault(expr.loops, []).append(expr)
            for group in groups.values():
                self.group(group, roots)

    def _stages(self, roots: Iterable[Expr]) -> dict[Expr, tuple[int, Reduce]]:
        """The reductions to write here, each with the number of others that must be finished before it."""
        stages: dict[Expr, tuple[int, Reduce]] = {}
        done: dict[tuple[Expr, frozenset[str]], int] = {}

        def visit(expr: Expr, hidden: frozenset[str]) -> int:
            """The first stage at which the operands of `expr` are there."""
            if self.known(expr) is not None:
                return 0
            if (expr, hidden) not in done:
                inner = hidden | {loop.var for loop in expr.loops} if isinstance(expr, Reduce) else hidden
                here = isinstance(expr, Reduce) and self.is_bound(expr, hidden)
                below = inner - hidden if here else inner
                stage = max((visit(operand, below) for operand in operands(expr)), default=0)
                if here and isinstance(expr, Reduce):
                    stages[expr] = (stage, expr)
                done[expr, hidden] = stage + 1 if here else stage
            return done[expr, hidden]

        for root in roots:
            visit(root, frozenset())
        return stages

    def group(self, group: Sequence[Reduce], roots: Sequence[Expr]) -> None:
        """One pass over the loops that the reductions share."""
        loops, bodies = self._own_loops(group)
        accumulators = [self._accumulator(r, loops, self.tile is not None) for r in group]
        takes = list(zip(accumulators, bodies, strict=True))
        if self.tile is not None:
            self._fill_lanes(takes, loops)
            self._finish(takes, "[lane]")
        elif not self.bound and not self.parallel and not is_small(self._work(loops, bodies)):
            self._in_parts(takes, loops)
        else:
            self._by_row(takes, loops, self._shared(group, bodies, loops, roots))
            self._finish(takes)

    def _own_loops(self, group: Sequence[Reduce]) -> tuple[tuple[Loop, ...], list[Expr]]:
        """The loops, contiguous one last, and the bodies; under other names where an open loop has a name of theirs."""
        loops, bodies = group[0].loops, [r.body for r in group]
        clash = {loop.var: self.fresh("q") for loop in loops if loop.var in self.bound or loop.var in self.ranges}
        if clash:
            loops = tuple(Loop(clash.get(loop.var, loop.var), loop.extent) for loop in loops)
            self.loop_names |= set(clash.values())
            environment = {old: Symbol(new) for old, new in clash.items()}
            extents = {**self.extents, **{loop.var: loop.extent for loop in loops}}
            bodies = [Renamer(self.variables, environment, extents)(body) for body in bodies]
            self.loop_names |= names_bound(subexpressions(bodies))
        return _contiguous_last(loops, bodies), bodies

    def _accumulator(self, reduce: Reduce, loops: Sequence[Loop], in_lanes: bool) -> Accumulator:
        dtype = torch.float32 if reduce.dtype in HALVES else reduce.dtype
        narrow = C_TYPES[dtype]
        if dtype == torch.bool:
            narrow = "i32" if reduce.op in ("any", "all") else "u8"
        limit = ROW_BLOCK if in_lanes else BLOCK
        is_long = len(loops) > 1 or not isinstance(loops[0].extent, Int) or loops[0].extent.value > limit
        is_wide = narrow == "f32" and reduce.op in ("sum", "prod") and is_long
        has_nan = not in_lanes and reduce.op in ("max", "min") and narrow in ("f32", "f64")
        place = next(self.count)
        return Accumulator(
            reduce,
            f"acc{place}",
            f"total{place}" if is_wide else None,
            f"nan{place}" if has_nan else None,
            narrow,
            "f64" if is_wide else narrow,
            operator_of(reduce.op, dtype),
        )

    def _taken(self, accumulator: Accumulator, body: Expr) -> str:
        text = self.value(body)
        if accumulator.reduce.op in ("any", "all"):
            return text
        return cast(text, body.dtype, dtype_of(accumulator.narrow))

    def _finish(self, takes: Sequence[tuple[Accumulator, Expr]], suffix: str = "") -> None:
        for accumulator, _ in takes:
            self.name(accumulator.reduce, result_of(accumulator, f"{total_of(accumulator)}{suffix}"))

    def _work(self, loops: Sequence[Loop], roots: Iterable[Expr]) -> Index:
        total: Index = Int(cost(roots))
        for loop in loops:
            total = total * loop.extent
        return total

    def head(self, loop: Loop, step: str = "") -> str:
        first, last = self.ranges.get(loop.var, ("0", self.index(loop.extent)))
        return f"for (i64 {loop.var} = {first}; {loop.var} < {last}; {loop.var}{step or '++'})"

    # ---- reductions by rows ----

    def _by_row(self, takes: list[tuple[Accumulator, Expr]], loops: Sequence[Loop], shared: list[Expr]) -> None:
        rows = [self._row(expr, loops[-1]) for expr in shared]
        for accumulator, _ in takes:
            self.writer.line(f"{accumulator.wide} {total_of(accumulator)} = {accumulator.operator.start};")
            if accumulator.nan:
                self.writer.line(f"i32 {accumulator.nan} = 0;")
        self._row_loops(takes, loops, list(zip(rows, shared, strict=True)))
        for accumulator, _ in takes:
            if accumulator.nan:
                none = constant(float("nan"), dtype_of(accumulator.narrow))
                self.writer.line(f"{accumulator.name} = {accumulator.nan} ? {none} : {accumulator.name};")
        for row, expr in zip(rows, shared, strict=True):
            self.name(expr, f"{row}[{loops[-1].var}]")

    def _row(self, expr: Expr, loop: Loop) -> str:
        row = self.fresh("row")
        self.writer.line(f"alignas(64) {C_TYPES[expr.dtype]} {row}[{self.index(loop.extent)}];")
        return row

    def _row_loops(
        self, takes: list[tuple[Accumulator, Expr]], loops: Sequence[Loop], shared: list[tuple[str, Expr]]
    ) -> None:
        if len(loops) == 1:
            self._row_blocks(takes, loops[0], shared)
            return
        with self.writer.block(self.head(loops[0])), self.scope(loops[0]):
            self.hoist(body for _, body in takes)
            self._row_loops(takes, loops[1:], shared)

    def _row_blocks(self, takes: list[tuple[Accumulator, Expr]], loop: Loop, shared: list[tuple[str, Expr]]) -> None:
        wide = [accumulator for accumulator, _ in takes if accumulator.total]
        if not wide:
            self._row_loop(takes, loop, shared)
            return
        self.hoist(body for _, body in takes)
        with self._blocks(loop, SIDE_BLOCK if _is_abreast(takes, loop) else BLOCK):
            for accumulator in wide:
                self.writer.line(f"{accumulator.narrow} {accumulator.name} = {accumulator.operator.start};")
            self._row_loop(takes, loop, shared)
            for accumulator in wide:
                self.writer.line(accumulator.operator.take.format(accumulator.total, accumulator.name) + ";")

    @contextmanager
    def _blocks(self, loop: Loop, size: int) -> Iterator[None]:
        """A scope in which the loop runs over one block of its range."""
        before = self.ranges
        first, last = before.get(loop.var, ("0", self.index(loop.extent)))
        if loop.var not in before and isinstance(loop.extent, Int) and loop.extent.value <= size:
            with self.writer.block(""), self.scope():
                yield
            return
        block, end = self.fresh("block"), self.fresh("end")
        with self.writer.block(f"for (i64 {block} = {first}; {block} < {last}; {block} += {size})"), self.scope():
            self.writer.line(f"const i64 {end} = m::least({block} + {size}, {last});")
            self.ranges = {**before, loop.var: (block, end)}
            yield
        self.ranges = before

    def _row_loop(self, takes: list[tuple[Accumulator, Expr]], loop: Loop, shared: list[tuple[str, Expr]]) -> None:
        self.hoist(body for _, body in takes)
        if not _is_abreast(takes, loop):
            self._row_steps(takes, loop, shared)
            return
        before = self.ranges
        rest = self._abreast(takes, loop, shared)
        if self.in_parts or not isinstance(loop.extent, Int) or loop.extent.value % SIDE:
            self.ranges = {**before, loop.var: rest}
            self._row_steps(takes, loop, shared)
            self.ranges = before

    def _row_steps(self, takes: list[tuple[Accumulator, Expr]], loop: Loop, shared: list[tuple[str, Expr]]) -> None:
        lanes = LANES_BESIDE_BYTES if _sums_beside_bytes(takes) else 0
        self.writer.pragma(simd_over([accumulator for accumulator, _ in takes], lanes))
        with self.writer.block(self.head(loop)), self.scope(loop):
            self._row_step(takes, loop, shared)

    def _row_step(self, takes: list[tuple[Accumulator, Expr]], loop: Loop, shared: list[tuple[str, Expr]]) -> None:
        self.ready(body for _, body in takes)
        for row, expr in shared:
            self.writer.line(f"{row}[{loop.var}] = {self.value(expr)};")
        for accumulator, body in takes:
            self._take(accumulator, self._taken(accumulator, body))

    def _abreast(
        self, takes: list[tuple[Accumulator, Expr]], loop: Loop, shared: list[tuple[str, Expr]]
    ) -> tuple[str, str]:
        """The steps of a row in vectors of accumulators, then joined; returns the range of the steps that are left."""
        first, last = self.ranges.get(loop.var, ("0", self.index(loop.extent)))
        copies = [self._copies(accumulator) for accumulator, _ in takes]
        block, end = self.fresh("block"), self.fresh("end")
        self.writer.line(f"const i64 {end} = {last} - ({last} - {first}) % {SIDE};")
        lanes = f"for (i64 lane = 0; lane < {SIDE}; lane++)"
        with self.writer.block(f"for (i64 {block} = {first}; {block} < {end}; {block} += {SIDE})"):
            self.writer.pragma("simd")
            with self.writer.block(lanes), self.scope(loop):
                self.writer.line(f"const i64 {loop.var} = {block} + lane;")
                self._row_step([(copy, body) for copy, (_, body) in zip(copies, takes, strict=True)], loop, shared)
        joined = [replace(accumulator, name=total_of(accumulator)) for accumulator, _ in takes]
        self.writer.pragma(simd_over(joined))
        with self.writer.block(lanes):
            for accumulator, copy in zip(joined, copies, strict=True):
                self._take_copy(accumulator, copy)
        return end, last

    def _copies(self, accumulator: Accumulator) -> Accumulator:
        """Accumulators of the same reduction, one a lane, at their start."""
        name, nan = self.fresh("acc"), self.fresh("nan") if accumulator.nan else None
        self.writer.line(f"alignas(64) {accumulator.narrow} {name}[{SIDE}];")
        start = f"{name}[lane] = {accumulator.operator.start};"
        if nan:
            self.writer.line(f"alignas(64) i32 {nan}[{SIDE}];")
            start = f"{start} {nan}[lane] = 0;"
        self.writer.line(f"for (i64 lane = 0; lane < {SIDE}; lane++) {{ {start} }}")
        return replace(accumulator, name=f"{name}[lane]", nan=f"{nan}[lane]" if nan else None)

    def _take_copy(self, accumulator: Accumulator, copy: Accumulator) -> None:
        """Takes in what a lane found."""
        if accumulator.nan is None:
            self.writer.line(accumulator.operator.take.format(accumulator.name, copy.name) + ";")
            return
        self._take_extreme(accumulator, copy.name)
        self.writer.line(f"{accumulator.nan} |= {copy.nan};")

    def _take(self, accumulator: Accumulator, taken: str) -> None:
        """One step of a row. NaNs are noted beside an extremum, which is one instruction without them."""
        name = accumulator.name
        if accumulator.nan is None:
            self.writer.line(accumulator.operator.take.format(name, taken) + ";")
            return
        self._take_extreme(accumulator, taken)
        self.writer.line(f"{accumulator.nan} |= {taken} != {taken};")

    def _take_extreme(self, accumulator: Accumulator, taken: str) -> None:
        name, sign = accumulator.name, ">" if accumulator.reduce.op == "max" else "<"
        self.writer.line(f"{name} = {taken} {sign} {name} ? {taken} : {name};")

    def _shared(
        self, group: Sequence[Reduce], bodies: Sequence[Expr], loops: Sequence[Loop], roots: Sequence[Expr]
    ) -> list[Expr]:
        """The costly values of this pass that a later pass over the same loop needs: worth a row of scratch."""
        loop = loops[-1]
        if len(loops) > 1 or loop.var in self.ranges or not isinstance(loop.extent, Int):
            return []
        later = self._reach(roots, {r for r in group})
        found: list[Expr] = []
        seen: set[Expr] = set()

        def visit(expr: Expr) -> None:
            if expr in seen or self.known(expr) is not None or isinstance(expr, Reduce | Const):
                return
            seen.add(expr)
            needed = self.variables.free(expr) & self.loop_names
            if expr in later and loop.var in needed and needed <= self.bound | {loop.var} and is_costly(expr):
                found.append(expr)
                return
            for operand in operands(expr):
                visit(operand)

        for body in bodies:
            visit(body)
        size = loop.extent.value
        return [e for e in found if size * e.dtype.itemsize <= SCRATCH_BYTES][:2]

    def _reach(self, roots: Sequence[Expr], stop: set[Expr]) -> set[Expr]:
        """The expressions under the roots that are not only in the reductions of `stop`."""
        seen: set[Expr] = set()
        stack = list(roots)
        while stack:
            expr = stack.pop()
            if expr not in seen and expr not in stop and self.known(expr) is None:
                seen.add(expr)
                stack += operands(expr)
        return seen

    # ---- reductions over everything, in parts ----

    def _in_parts(self, takes: list[tuple[Accumulator, Expr]], loops: Sequence[Loop]) -> None:
        """Each part of the outermost loop on some thread; the partial results joined in order."""
        span, first, last = self.fresh("span"), self.fresh("first"), self.fresh("last")
        extent = self.index(loops[0].extent)
        self.hoist([])
        for accumulator, _ in takes:
            self.writer.line(f"{accumulator.wide} part_{accumulator.name}[{PARTS}];")
        self.writer.line(f"const i64 {span} = ({extent} + {PARTS - 1}) / {PARTS};")
        self.writer.pragma("parallel for" + self._condition(self._work(loops, [body for _, body in takes])))
        with self.writer.block(f"for (i64 part = 0; part < {PARTS}; part++)"), self.scope():
            self.parallel = True
            self.writer.line(f"const i64 {first} = m::least(part * {span}, {extent});")
            self.writer.line(f"const i64 {last} = m::least({first} + {span}, {extent});")
            self.ranges, self.in_parts = {loops[0].var: (first, last)}, True
            self._by_row(takes, loops, [])
            self.ranges, self.in_parts = {}, False
            for accumulator, _ in takes:
                self.writer.line(f"part_{accumulator.name}[part] = {total_of(accumulator)};")
        self.parallel = False
        self._join_parts(takes)
        self._finish(takes)

    def _join_parts(self, takes: Sequence[tuple[Accumulator, Expr]]) -> None:
        for accumulator, _ in takes:
            name = total_of(accumulator)
            self.writer.line(f"{accumulator.wide} {name} = {accumulator.operator.start};")
            taken = accumulator.operator.take.format(name, f"part_{accumulator.name}[part]")
            self.writer.line(f"for (i64 part = 0; part < {PARTS}; part++) {taken};")

    def _condition(self, work: Index) -> str:
        return "" if isinstance(work, Int) else f" if ({self.index(work)} > {PARALLEL_WORK})"

    # ---- reductions by lanes ----

    @contextmanager
    def lanes(self) -> Iterator[None]:
        """A simd loop over the lanes of the open tile."""
        tile = self.tile
        assert tile is not None
        self.writer.pragma("simd")
        with self.writer.block(f"for (i64 lane = 0; lane < {tile.length}; lane++)"):
            self.tile = None
            with self.scope(tile.loop):
                self.writer.line(f"const i64 {tile.loop.var} = {tile.first} + lane;")
                yield
            self.tile = tile

    def _fill_lanes(self, takes: list[tuple[Accumulator, Expr]], loops: Sequence[Loop]) -> None:
        tile = self.tile
        assert tile is not None
        before = self.bound
        self.bound = before - {tile.loop.var}
        for accumulator, _ in takes:
            self._start_lanes(accumulator.wide, total_of(accumulator), accumulator, declare=True)
        for accumulator, _ in takes:
            if accumulator.total:
                self.writer.line(f"alignas(64) {accumulator.narrow} {accumulator.name}[{tile.capacity}];")
        self._lane_loops(takes, loops)
        self.bound = before

    def _each_lane(self, text: str) -> None:
        assert self.tile is not None
        self.writer.line(f"for (i64 lane = 0; lane < {self.tile.length}; lane++) {text};")

    def _start_lanes(self, kind: str, name: str, accumulator: Accumulator, declare: bool) -> None:
        assert self.tile is not None
        if declare:
            self.writer.line(f"alignas(64) {kind} {name}[{self.tile.capacity}];")
        self._each_lane(f"{name}[lane] = {accumulator.operator.start}")

    def _lane_loops(self, takes: list[tuple[Accumulator, Expr]], loops: Sequence[Loop]) -> None:
        if len(loops) == 1:
            self._lane_blocks(takes, loops[0])
            return
        with self.writer.block(self.head(loops[0])), self.scope(loops[0]):
            self.hoist(body for _, body in takes)
            self._lane_loops(takes, loops[1:])

    def _lane_blocks(self, takes: list[tuple[Accumulator, Expr]], loop: Loop) -> None:
        assert self.tile is not None
        wide = [accumulator for accumulator, _ in takes if accumulator.total]
        if not wide:
            self._lane_loop(takes, loop)
            return
        with self._blocks(loop, ROW_BLOCK):
            for accumulator in wide:
                self._start_lanes(accumulator.narrow, accumulator.name, accumulator, declare=False)
            self._lane_loop(takes, loop)
            for accumulator in wide:
                taken = accumulator.operator.take.format(f"{accumulator.total}[lane]", f"{accumulator.name}[lane]")
                self._each_lane(taken)

    def _lane_loop(self, takes: list[tuple[Accumulator, Expr]], loop: Loop) -> None:
        bodies = [body for _, body in takes]
        with self.writer.block(self.head(loop)), self.scope(loop):
            self.hoist(bodies)
            self._fetch_ahead(bodies, loop)
            with self.lanes():
                self.ready(bodies)
                for accumulator, body in takes:
                    taken = self._taken(accumulator, body)
                    self.writer.line(accumulator.operator.take.format(f"{accumulator.name}[lane]", taken) + ";")

    def _fetch_ahead(self, bodies: Sequence[Expr], loop: Loop) -> None:
        """Asks for the memory of rows to come, where rows are of a length for which the processor does not."""
        tile = self.tile
        assert tile is not None
        if self.ahead == 0:
            return
        found = dict.fromkeys((e.buffer, e.index) for e in subexpressions(bodies) if isinstance(e, Load))
        for buffer, index in found:
            steps = [affine.stride(index, var) for var in (tile.loop.var, loop.var)]
            if steps[0] == Int(1) and isinstance(steps[1], Int) and steps[1].value >= tile.capacity:
                later = {loop.var: Symbol(loop.var) + self.ahead, tile.loop.var: Symbol(tile.first)}
                self.writer.line(f"m::fetch({buffer} + {self.index(affine.substitute(index, later))}, {tile.length});")


def _is_abreast(takes: Sequence[tuple[Accumulator, Expr]], loop: Loop) -> bool:
    """Whether a pass would wait for its own additions: floats, of which each is made at little cost."""
    least = SIDE if _sums_beside_bytes(takes) else 2 * SIDE
    if isinstance(loop.extent, Int) and loop.extent.value < least:
        return False
    if any(accumulator.narrow not in ("f32", "f64") or not accumulator.operator.clause for accumulator, _ in takes):
        return False
    bodies = [body for _, body in takes]
    is_cheap = cost(bodies) <= number("accumulated_step_work") and not any(map(is_costly, bodies))
    return len(takes) <= 2 and is_cheap


def _sums_beside_bytes(takes: Sequence[tuple[Accumulator, Expr]]) -> bool:
    """Whether a pass adds up floats and reads elements of one byte."""
    adds = any(each.narrow in ("f32", "f64") and each.operator.clause in ("+", "*") for each, _ in takes)
    found = (expr for _, body in takes for expr in without_reductions(body))
    return adds and any(isinstance(expr, Load) and expr.dtype.itemsize == 1 for expr in found)


def is_small(work: Index) -> bool:
    return isinstance(work, Int) and work.value < PARALLEL_WORK


def is_costly(expr: Expr) -> bool:
    return any(isinstance(e, Call) and e.op in COSTLY for e in without_reductions(expr))


def without_reductions(expr: Expr) -> Iterator[Expr]:
    yield expr
    if not isinstance(expr, Reduce):
        for operand in operands(expr):
            yield from without_reductions(operand)


def _contiguous_last(loops: tuple[Loop, ...], bodies: Sequence[Expr]) -> tuple[Loop, ...]:
    loads = [e.index for e in subexpressions(bodies) if isinstance(e, Load)]
    score = {loop.var: sum(is_near(affine.stride(i, loop.var)) for i in loads) for loop in loops}
    last = max(reversed(loops), key=lambda loop: score[loop.var])
    return (*(loop for loop in loops if loop is not last), last)
