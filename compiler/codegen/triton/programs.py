"""`emit_programs`: a kernel as Triton programs, each a launch of its own.

    Kernel -> normalize -> (Nest, ...) -> (Program, ...)

A program computes a tile of two axes. `x` runs over the loops outside of every reduction, flattened; `y` over what is
reduced, or over the inner loops of a nest without reductions. A value has the shape [x, y], with 1 for an axis that it
does not depend on. So what belongs to a row is computed once a row. Where a tile is one row, that is a scalar. A row
that fits into a tile is read once and stays in registers. A longer one is walked in steps, once for all reductions
that wait for no other. The same walk takes sums of powers beside the greatest, squares of distances beside the sum,
and stores of what it reads:

    for y_0 in range(0, n, 2048):  part = part + tl.where(in range, x[i, y], 0)
    total = tl.sum(part, 1)

A reduction over few elements, or one that varies along `y` itself, is a loop over tiles. A scan runs along `y` and
carries its total from tile to tile. Stores that two iterations may meet in are atomic.
"""

from __future__ import annotations

import itertools
import keyword
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import torch

from assay.compiler.codegen.loops import affine
from assay.compiler.codegen.loops.early_stores import early_stores
from assay.compiler.codegen.loops.identifiers import with_identifiers
from assay.compiler.codegen.loops.nest import Nest, loops_of, normalize, segments
from assay.compiler.codegen.loops.operators import HALVES
from assay.compiler.codegen.loops.renamer import Renamer, Variables, operands, subexpressions, with_expr
from assay.compiler.codegen.triton import expressions as triton_expr
from assay.compiler.codegen.triton import indices as triton_index
from assay.compiler.codegen.triton.equal_stores import Instances, Twins, launcher_text, twins_of
from assay.compiler.codegen.triton.products import product_program
from assay.compiler.codegen.triton.row_edges import Access, Edge, edge_of, rounded_down, rounded_up
from assay.compiler.codegen.triton.tile_sizes import (
    LONGEST_ROW,
    USUAL,
    Blocks,
    Change,
    Shape,
    choose,
    pieces_of,
    split_of,
    whole_rows,
)
from assay.compiler.codegen.triton.tiles import (
    Parts,
    Place,
    Program,
    Tile,
    contiguous_across,
    held_at_once,
    identity_of,
    is_power,
    join_name,
    joined_results,
    joined_text,
    levels_of,
    parenthesized,
    peak_of,
    register_type,
    scan_join_name,
    sum_of_moment,
)
from assay.compiler.errors import Unexpected
from assay.compiler.ir.loops.failures import FAILURES
from assay.compiler.ir.loops.index import Index, Int, Symbol, product
from assay.compiler.ir.loops.kernel import (
    AsValue,
    Bind,
    Buffer,
    Call,
    Cast,
    Check,
    Const,
    Expr,
    Kernel,
    Load,
    Loop,
    Mode,
    Reduce,
    Scan,
    Store,
)
from assay.compiler.ir.loops.rewrite import is_scattered
from assay.compiler.ir.tensors.devices import LEAST, LEAST_OF_BFLOAT16, least_capability
from assay.compiler.journal import say_once

HEADER = """import triton
import triton.language as tl

from {math} import d
import {math} as m
"""
NUMBERS = 100
"""The numbers of tiles go up to here; those of what is left of their rows are above it."""
SEQUENTIAL = 32
"""A reduction over so few elements is a loop over tiles."""
UNROLLED = 16
"""Its iterations up to which the loop is written out."""
ATOMIC = (torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int32, torch.int64)
_OURS = re.compile(
    r"(v|g|part|carry|y|x|z|in_y|s|k|lead|base)_?\d*|(near|inner|outer)_\d+_\d+|part_\d+_(from|met)|pid|in_x|in_z"
    r"|tl|triton|m|d|range"
)


@dataclass(frozen=True, slots=True)
class Manner:
    """How programs are written.

    They may have indices of 64 bits, one row a tile, addresses at multiples of 16, and tiles that are changed so. They
    may be functions that another program calls, with the number of the instance first.
    """

    is_wide: bool = False
    is_by_row: bool = False
    is_aligned: bool = True
    change: Change = USUAL
    is_called: bool = False

    @property
    def number(self) -> str:
        """The text of an instance's number."""
        return f"tl.program_id(0){'.to(tl.int64)' if self.is_wide else ''}"


def emit_programs(
    kernel: Kernel,
    is_wide: bool = False,
    is_by_row: bool = False,
    is_aligned: bool = True,
    change: Change = USUAL,
) -> tuple[Program, ...]:
    """The programs of a kernel, in an order in which they may run. With `is_wide` indices have 64 bits; `is_by_row`
    makes each tile one row, whose own values are scalars; with `is_aligned` addresses are multiples of 16, and rows are
    read 16 bytes at a time. `change` is how tiles differ from those that the sizes give. A kernel that says its tiles
    itself is one program, whatever these are.

    Raises: Unexpected for an operator that Triton has no text for.
    """
    if kernel.tiles is not None:
        return (product_program(kernel, kernel.tiles, is_wide),)
    manner = Manner(is_wide, is_by_row, is_aligned, change)
    return _for_each(kernel, twins_of(kernel), manner) or _emitted(kernel, manner)


def _for_each(kernel: Kernel, several: Sequence[Twins], manner: Manner) -> tuple[Program, ...]:
    """Programs of which each set of buffers has its instances; none where their number is not known, or one set needs
    memory beside."""
    symbols = with_identifiers(kernel, _identifier).symbols
    made: list[Program] = []
    for number, twins in enumerate(several):
        first = replace(twins.first, name=f"{kernel.name}_each{number or ''}")
        for program in _emitted(first, replace(manner, is_called=True)):
            if program.workspace or not isinstance(program.grid, Int):
                return ()
            name = kernel.name if not made else f"{kernel.name}_{len(made)}"
            count, each = len(kernel.buffers), max(1, program.grid.value)
            text = launcher_text(name, Instances(program.name, each, manner.number), twins, count, symbols)
            grid = program.grid * len(twins.sets)
            made.append(replace(program, name=name, text=f"{program.text}\n{text}", grid=grid))
    return tuple(made)


def _emitted(kernel: Kernel, manner: Manner) -> tuple[Program, ...]:
    renamed = with_identifiers(kernel, _identifier)
    variables, nests = normalize(renamed)
    names = (kernel.name if not n else f"{kernel.name}_{n}" for n in itertools.count())
    back: dict[str, Index] = {new: Symbol(old) for new, old in zip(renamed.symbols, kernel.symbols, strict=True)}
    programs: list[Program] = []
    for nest in nests:
        programs += _programs_of(renamed, variables, nest, manner, names)
    return tuple(replace(program, grid=affine.substitute(program.grid, back)) for program in programs)


def _programs_of(
    kernel: Kernel, variables: Variables, nest: Nest, manner: Manner, names: Iterator[str]
) -> list[Program]:
    """The programs of a nest: one, or before it some that compute long reductions of few rows in parts."""
    programs: list[Program] = []
    while True:
        emitter = _Emitter(kernel.name, kernel, variables, nest, manner)
        if len(groups := emitter.groups()) > 1:
            return [
                *programs,
                *(p for group in groups for p in _programs_of(kernel, variables, group, manner, names)),
            ]
        emitter.name = next(names)
        parts = emitter.parts()
        if parts is None:
            return [*programs, emitter.run()]
        kernel = replace(kernel, buffers=(*kernel.buffers, *parts.buffers))
        programs.append(_Emitter(emitter.name, kernel, variables, nest, manner, parts).run())
        nest = replace(nest, stores=tuple(parts.joined(store) for store in nest.stores))


def takes(update: Mode | None, dtype: torch.dtype, found: Sequence[Expr]) -> bool:
    """Whether Triton has text for these expressions, and for an update of that mode of tensors of the dtype. Sums by
    atomic additions come in no order, so none are made where the user wants results that do not vary."""
    if not _device_takes(dtype, found):
        return False
    if update is not None and update != "write":
        is_varying = dtype.is_floating_point and torch.are_deterministic_algorithms_enabled()
        if update != "accumulate" or dtype not in ATOMIC or is_varying:
            return False
    return all(triton_expr.is_supported(e.op, e.args[0].dtype) for e in found if isinstance(e, Call))


def _device_takes(dtype: torch.dtype, found: Sequence[Expr]) -> bool:
    """Whether the oldest GPU runs what Triton writes of these; where it does not, that is said."""
    capability = least_capability()
    if capability is None or capability >= LEAST_OF_BFLOAT16:
        return True
    if capability < LEAST:
        say_once(
            f"assay: a GPU of capability {capability} runs no kernels of Triton's: all operators are calls to ATen"
        )
        return False
    if torch.bfloat16 not in (dtype, *(e.dtype for e in found)):
        return True
    say_once(f"assay: a GPU of capability {capability} has no bfloat16: what computes in it is left to ATen")
    return False


def _identifier(name: str) -> str:
    plain = re.sub(r"\W", "_", name)
    return f"{plain}_" if keyword.iskeyword(plain) or _OURS.fullmatch(plain) or plain[:1].isdigit() else plain


class _Emitter:
    """One nest as one program; with `parts` the program that computes these alone."""

    def __init__(
        self, name: str, kernel: Kernel, variables: Variables, nest: Nest, manner: Manner, split: Parts | None = None
    ) -> None:
        self.name, self.kernel, self.variables, self.nest, self.is_wide = name, kernel, variables, nest, manner.is_wide
        self.split, self.manner = split, manner
        self.dtypes = {buffer.name: buffer.dtype for buffer in kernel.buffers}
        self.extents = {loop.var: loop.extent for loop in nest.loops}
        self.is_narrow = split is None and all(self.dtypes[s.buffer] in HALVES for s in nest.stores)
        self.count = 0
        self.led: set[int] = set()
        self.checks = self.is_across = False
        self.int_type = "tl.int64" if manner.is_wide else "tl.int32"
        self.scans = [e for e in subexpressions(s.expr for s in nest.stores) if isinstance(e, Scan)]
        reductions = self._parallel_reductions()
        self.levels = levels_of(reductions)
        self.x_loops, self.y_loops, self.z_loops = self._axes(reductions)
        self.blocks = self._choose(reductions)
        if manner.is_by_row:
            self.blocks = replace(self.blocks, x=1)
        self.sections = [(self.y_loops, self.nest.stores)]
        if len(self.y_loops) == 1 and not (reductions or self.scans or self.is_across):
            self.sections = self._sections(self.y_loops[0])
        self.are_halves_summed = not self.y_loops and self._reads_halves(reductions)
        self.x_vars = frozenset(loop.var for loop in self.x_loops)
        self.root = Place([], 1, None, self.x_vars | {loop.var for loop in self.z_loops}, None)
        self.tiles: dict[tuple[Loop, ...], Tile] = {}
        self.whole: dict[Tile, Place] = {}
        self.early: list[Store] = []

    def _reads_halves(self, reductions: Sequence[Reduce]) -> bool:
        """Whether what is reduced is of halves, beside what each row has one of."""
        loads = [
            e for reduction in reductions for e in subexpressions([reduction.body])
            if isinstance(e, Load) and affine.names(e.index) & {loop.var for loop in reduction.loops}
        ]  # fmt: skip
        return bool(loads) and all(self.dtypes[load.buffer] in HALVES for load in loads)

    # ---- stores apart

    def groups(self) -> list[Nest]:
        """The nest as one for each set of loops whose instances its stores run in.

        So no store runs in instances that it has no part in. It runs as often as it should, even where others do not
        run at all.
        """
        nest, found = self.nest, dict[frozenset[str], list[Store]]()
        is_rowwise = bool(self.levels or self.scans) and not self._may_be_none()
        for store in nest.stores:
            loops = loops_of(self.variables, store, nest.loops)
            found.setdefault(loops & self.x_vars if is_rowwise else loops, []).append(store)
        if len(found) == 1:
            return [nest]
        nests = []
        for stores in found.values():
            used = frozenset[str]().union(*(loops_of(self.variables, store, nest.loops) for store in stores))
            mine = tuple(loop for loop in nest.loops if loop.var in used)
            nests.append(Nest(mine, tuple(stores), nest.lane if nest.lane in used else None))
        return nests

    def _may_be_none(self) -> bool:
        """Whether the instances are divided along the row of the stores, and may be none."""
        total = product(tuple(loop.extent for loop in self.y_loops))
        is_some = isinstance(total, Int) and total.value > 0
        return not is_some and self._tile_of(self.y_loops)[1] == "grid"

    # ---- reductions in parts

    def parts(self) -> Parts | None:
        """The reductions that are better computed in parts, of those that wait for no other; None where there are
        none: rows are many, or short, or their number is not known."""
        rows, groups = self._x_total(), dict[tuple[Loop, ...], list[Reduce]]()
        for reduction in self.levels[0] if self.levels else ():
            groups.setdefault(self._ordered(reduction.loops), []).append(reduction)
        for reduction in self.levels[1] if len(self.levels) > 1 else ():
            first, beside = sum_of_moment(reduction), groups.get(self._ordered(reduction.loops), [])
            if first is not None and any(first is e for e in beside):
                beside.append(reduction)
        for loops, members in groups.items():
            total = product(tuple(loop.extent for loop in loops))
            if not isinstance(total, Int) or not isinstance(rows, Int) or any(map(self._has_binding, members)):
                continue
            count, length = split_of(rows.value, total.value, self.blocks)
            if count > 1:
                numel = Int(rows.value * count)
                at = len(self.kernel.buffers)
                buffers = tuple(Buffer(f"parts_{at + n}", e.dtype, numel) for n, e in enumerate(members))
                return Parts(tuple(members), buffers, count, length, self._row(), rows)
        return None

    def _has_binding(self, reduction: Reduce) -> bool:
        """Whether the reduction takes part in naming a place that data gives, whose variable is known by what it is."""
        inside = {e for p in self.variables.positions.values() for e in subexpressions([p])}
        return reduction in inside

    def _row(self) -> Index:
        row: Index = Int(0)
        for loop in self.x_loops:
            row = row * loop.extent + Symbol(loop.var)
        return row

    # ---- what is an axis of what

    def _parallel_reductions(self) -> list[Reduce]:
        """The reductions that are computed over a `y` of their own: long ones, that vary with no loop of another."""
        found = [e for e in subexpressions(s.expr for s in self.nest.stores) if isinstance(e, Reduce)]
        varying = set()
        for outer in found:
            bound = {loop.var for loop in outer.loops}
            inside = (e for e in subexpressions([outer.body]) if isinstance(e, Reduce))
            varying |= {e for e in inside if self.variables.free(e) & bound}
        return [e for e in found if not self._is_short(e) and e not in varying]

    def _is_short(self, expr: Reduce) -> bool:
        total = product(tuple(loop.extent for loop in expr.loops))
        self.extents |= {loop.var: loop.extent for loop in expr.loops}
        return isinstance(total, Int) and total.value <= SEQUENTIAL

    def _axes(self, reductions: Sequence[Reduce]) -> tuple[tuple[Loop, ...], tuple[Loop, ...], tuple[Loop, ...]]:
        """The loops of `x`, of `y`, and those that number the instance alone."""
        loops = self.nest.loops
        if self.scans:
            scanned = {name for scan in self.scans for name in affine.names(scan.last)}
            return tuple(v for v in loops if v.var not in scanned), tuple(v for v in loops if v.var in scanned), ()
        if reductions:
            outside = frozenset[str]().union(*map(self.variables.free, reductions))
            return tuple(v for v in loops if v.var in outside), tuple(v for v in loops if v.var not in outside), ()
        if len(loops) < 2:
            return (), loops, ()
        inner, others = loops[-1], loops[:-1]
        across = contiguous_across(self.nest.stores, others, inner)
        self.is_across = across is not None
        if across is None:
            return others, (inner,), ()
        return (across,), (inner,), tuple(loop for loop in others if loop is not across)

    def _choose(self, reductions: Sequence[Reduce]) -> Blocks:
        rows = [product(tuple(v.extent for v in self.x_loops)), product(tuple(v.extent for v in self.z_loops))]
        lengths = [product(tuple(loop.extent for loop in e.loops)) for e in reductions]
        inner = product(tuple(v.extent for v in self.y_loops))
        lane = self.nest.lane if reductions or self.scans else None
        is_x_near = lane is not None and lane in {loop.var for loop in self.x_loops[-1:]}
        is_gathered = bool(self.variables.positions)
        shape = Shape(
            rows[0], inner, tuple(lengths), bool(self.scans), self.is_across, is_x_near, is_gathered,
            held_at_once(self.nest.stores), self._walked(),
        )  # fmt: skip
        return choose(shape, self.manner.change)

    def _walked(self) -> int:
        """How many steps the longest loop has that an element of a tile walks; 1 where none does."""
        found = (e for e in subexpressions(s.expr for s in self.nest.stores) if isinstance(e, Reduce))
        totals = (product(tuple(loop.extent for loop in e.loops)) for e in found if self._is_short(e))
        return max((total.value for total in totals if isinstance(total, Int)), default=1)

    # ---- the program

    def run(self) -> Program:
        if self.split is not None:
            return self._run_parts(self.split)
        tiles_of_stores = [self._tile(loops) if loops else None for loops, _ in self.sections]
        store_tile = tiles_of_stores[0]
        for level in self._levels_online():
            tiles: dict[Tile, list[Reduce]] = {}
            for reduction in level:
                tiles.setdefault(self._tile(self._ordered(reduction.loops)), []).append(reduction)
            for tile, members in tiles.items():
                self._reduce(tile, members, self._beside(tile, members) if tile is store_tile else ())
        for along, (_, stores) in zip(tiles_of_stores, self.sections, strict=True):
            if left := [store for store in stores if not any(store is other for other in self.early)]:
                self._store(along, left)
        return self._program(self._text(store_tile), self._grid(store_tile))

    def _run_parts(self, parts: Parts) -> Program:
        loops = self._ordered(parts.reductions[0].loops)
        self.extents |= {loop.var: loop.extent for loop in loops}
        tile = self.tiles[loops] = Tile(0, loops, self.blocks.step, "steps", parts)
        self._reduce(tile, parts.reductions)
        for reduction, buffer in zip(parts.reductions, parts.buffers, strict=True):
            beside = f" + z * {self._size(parts.rows)}"
            where, lines = self._store_lines(Store(buffer.name, parts.row, reduction, "write"), self.root, beside)
            for line in lines:
                where.line(line)
        return self._program(self._text(None, parts), self._grid(None) * parts.count)

    def _program(self, text: str, grid: Index) -> Program:
        workspace = tuple(buffer for buffer in self.kernel.buffers if buffer.name.startswith("parts_"))
        return Program(self.name, text, grid, self.blocks.warps, self.checks, workspace)

    def _ordered(self, loops: tuple[Loop, ...]) -> tuple[Loop, ...]:
        """The loops of a reduction in the order of the nest's, where they are those, so that both are one tile."""
        order = {loop.var: at for at, loop in enumerate(self.y_loops)}
        return tuple(sorted(loops, key=lambda loop: order.get(loop.var, -1)))

    def _tile(self, loops: tuple[Loop, ...]) -> Tile:
        if loops not in self.tiles:
            self.extents |= {loop.var: loop.extent for loop in loops}
            block, way = self._tile_of(loops)
            tile = self.tiles[loops] = Tile(len(self.tiles), loops, block, way, edge=self._edge(loops))
            tile.head = tile.number
            if way == "whole":
                self._divide(tile)
        return self.tiles[loops]

    def _tile_of(self, loops: tuple[Loop, ...]) -> tuple[int, str]:
        """The block of a tile over these loops, and how it runs over them."""
        is_reduced = any(self._ordered(e.loops) == loops for level in self.levels for e in level)
        is_in_program = is_reduced or bool(self.scans) or len(self.sections) > 1
        return self.blocks.tile(product(tuple(v.extent for v in loops)), is_in_program)

    def _divide(self, tile: Tile) -> None:
        """Makes a whole row tiles of as many elements, where it is far from a power of two of them."""
        assert isinstance(tile.lanes, Int)
        tile.block, *others = pieces_of(tile.lanes.value, is_one=bool(self.scans))
        begins = tile.block
        for block in others:
            number = NUMBERS * (len(tile.more) + 1) + tile.number
            tile.more.append(replace(tile, number=number, block=block, begins=begins, more=[]))
            begins += block

    def _edge(self, loops: tuple[Loop, ...]) -> Edge | None:
        """How the rows of a tile lie, where that is off 16 bytes."""
        if len(loops) != 1 or not self.manner.is_aligned or self.is_across or len(self.sections) > 1:
            return None
        found = subexpressions(store.expr for store in self.nest.stores)
        accesses = [Access(e.index, self.dtypes[e.buffer]) for e in found if isinstance(e, Load)]
        accesses += [Access(store.index, self.dtypes[store.buffer]) for store in self.nest.stores]
        accesses = [access for access in accesses if not self._is_placed_along(loops[0], access.index)]
        outside = self.x_vars | {loop.var for loop in self.z_loops}
        edge = edge_of(loops[0], accesses, outside, self.extents)
        is_drawn = any(isinstance(e, Call) and e.op == "philox" for e in found)  # at positions that begin at a multiple
        return None if edge is not None and edge.is_led and is_drawn else edge

    def _is_placed_along(self, loop: Loop, index: Index) -> bool:
        """Whether data gives a part of the place for each turn of the loop."""
        positions = self.variables.positions
        given = affine.names(index) & positions.keys()
        return any(loop.var in self.variables.free(positions[name]) for name in given)

    def _place_of(self, tile: Tile) -> tuple[Place, bool]:
        """Where values over a tile are computed; whether that is a loop whose lines are still to be added."""
        own = frozenset(loop.var for loop in tile.loops)
        if tile.lane != tile.name:
            self._lead(tile)
        if tile.way == "steps":
            return Place([], self.root.depth + 1, self.root, own, tile, True), True
        if tile not in self.whole:
            self.whole[tile] = Place(self.root.lines, self.root.depth, self.root, own, tile, True)
            start = f"y{tile.number} + " if tile.way == "grid" else f"{tile.begins} + " if tile.begins else ""
            self._begin(tile, self.root, f"{start}tl.arange(0, {tile.block})[None, :]")
        return self.whole[tile], False

    def _begin(self, tile: Tile, place: Place, text: str) -> None:
        """The first lines over a tile: its numbers, and which of them are in range."""
        place.line(f"{tile.lane} = {text}{'.to(tl.int64)' if self.is_wide else ''}")
        if tile.lane != tile.name:
            place.line(f"{tile.name} = {tile.lane} - {self._lead(tile)}")
        if tile.mask:
            is_led = tile.lane != tile.name
            behind = f"({tile.name} >= 0) & " if is_led and not tile.begins else ""
            end = f"{tile.name} < {self._size(tile.total)}"
            place.line(f"{tile.mask} = {behind}{f'({end})' if behind else end}")

    def _lead(self, tile: Tile) -> str:
        """The name of how far behind a multiple of its width each row of a tile begins; `base` is that multiple."""
        assert tile.edge is not None
        name, base = f"lead_{tile.head}", f"base_{tile.head}"
        if tile.head not in self.led:
            self.led.add(tile.head)
            start = parenthesized(self._index(tile.edge.start, self.root)[0])
            self.root.line(f"{name} = {start} % {tile.edge.width}")
            self.root.line(f"{base} = {start} // {tile.edge.width} * {tile.edge.width}")
        return name

    def _end(self, tile: Tile, place: Place) -> None:
        """Adds the loop over a tile's blocks."""
        start = f"y{tile.number}"
        span = f"0, {self._size(tile.lanes)}"
        if tile.parts is not None:
            self.root.line(f"first = z * {tile.parts.length}")
            span = f"first, tl.minimum(first + {tile.parts.length}, {self._size(tile.total)})"
        self.root.line(f"for {start} in range({span}, {tile.block}):")
        head = Place([], place.depth, None, frozenset(), None)
        self._begin(tile, head, f"{start} + tl.arange(0, {tile.block})[None, :]")
        self.root.lines += [*head.lines, *place.lines]

    # ---- reductions

    def _levels_online(self) -> list[list[Reduce]]:
        """The levels, with two joined over a row that is walked in steps.

        A sum of powers comes with the greatest exponent, if it waits for that alone. A sum of squares of distances
        from the mean comes with the sum.
        """
        if len(self.levels) < 2:
            return self.levels
        together: list[Reduce] = []
        for reduction in self.levels[1]:
            first = peak_of(reduction) or sum_of_moment(reduction)
            if first is not None and any(first is e for e in self.levels[0]):
                tile = self._tile(self._ordered(reduction.loops))
                if tile.way == "steps" and tile is self._tile(self._ordered(first.loops)):
                    if peak_of(reduction) is not None or self._has_whole_steps(tile):
                        together.append(reduction)
        rest = [e for e in self.levels[1] if not any(e is other for other in together)]
        return [[*self.levels[0], *together], *([rest] if rest else []), *self.levels[2:]]

    def _beside(self, tile: Tile, members: Sequence[Reduce]) -> list[Store]:
        """The stores that are made while a row is walked for these reductions."""
        if tile.way != "steps":
            return []
        kinds = {buffer.name: (buffer.dtype, buffer.numel) for buffer in self.kernel.buffers}
        own = frozenset(loop.var for loop in tile.loops)
        reductions = [e for level in self.levels for e in level]
        found = early_stores(self.nest.stores, members, reductions, own, kinds, self.early)
        self.early += found
        return found

    def _reduce(self, tile: Tile, members: Sequence[Reduce], stores: Sequence[Store] = ()) -> None:
        """Computes reductions over one tile; in steps, one loop for all, in which some stores are made as well."""
        place, is_loop = self._place_of(tile)
        if not is_loop:
            for reduction in members:
                names = []
                for at in (place, *(self._place_of(piece)[0] for piece in tile.more)):
                    value = self._masked(self._value(self._converted(reduction), at), at, reduction)
                    names.append(self._new(self.root, self._reduced(reduction, value)))
                for name in names[1:]:
                    names[0] = self._new(self.root, joined_results(reduction, names[0], name))
                self.root.names[reduction] = names[0]
            return
        parts: dict[Expr, str] = {reduction: f"part_{self.count + n}" for n, reduction in enumerate(members)}
        self.count += len(members)
        peaks = {e: peak for e in members if (peak := peak_of(e)) is not None and peak in parts}
        sums = {e: total for e in members if (total := sum_of_moment(e)) is not None and total in parts}
        totals = {total for total in sums.values()}
        assert len(totals) == len(sums), "the squares of a sum's values are one reduction: it makes their sum as well"
        for reduction in sorted(members, key=lambda e: e not in peaks | sums):  # before those, which they read
            if reduction in sums:
                self._square_in_steps(reduction, sums[reduction], place, parts)
            elif reduction not in totals:
                self._reduce_in_steps(reduction, peaks.get(reduction), place, parts)
        for where, lines in [self._store_lines(store, place) for store in stores]:
            for line in lines:
                where.line(line)
        self._end(tile, place)
        for reduction in members:
            if reduction not in peaks | sums and reduction not in totals:
                self.root.names[reduction] = self._new(self.root, self._reduced(reduction, parts[reduction]))
        for reduction in members:
            if reduction in sums:
                self._join_lanes(reduction, sums[reduction], tile, parts)
            elif reduction in peaks:
                peak = peaks[reduction]
                part = f"{parts[reduction]} * d.exp({parts[peak]} - {self.root.names[peak]})"
                self.root.names[reduction] = self._new(self.root, self._reduced(reduction, part))

    def _reduce_in_steps(self, expr: Reduce, peak: Reduce | None, place: Place, parts: dict[Expr, str]) -> None:
        """The lines that join a step's values to those before. With `peak`, a sum of powers beside their greatest
        exponent: what was summed is scaled down where a greater one is met."""
        assert place.tile is not None
        part, start = parts[expr], identity_of(expr.op, expr.dtype)
        self.root.line(f"{part} = tl.full([{self._rows(expr)}, {place.tile.block}], {start}, {register_type(expr)})")
        value = self._masked(self._value(self._converted(peak or expr), place), place, peak or expr)
        if peak is not None:
            joined = "joined_powers_of_halves" if self.are_halves_summed else "joined_powers"
            place.line(f"{part} = m.{joined}({part}, {parts[peak]}, {value})")
        else:
            place.line(f"{part} = {joined_text(expr, part, value)}")

    def _has_whole_steps(self, tile: Tile) -> bool:
        """Whether only the last step of a tile may have lanes that are beyond the end."""
        return tile.lane == tile.name

    def _square_in_steps(self, expr: Reduce, total: Reduce, place: Place, parts: dict[Expr, str]) -> None:
        """The lines that join a step's values, lane by lane, to the running sum and the running squares of distances
        from the mean.

        Each lane has met as many values as there were steps. All are taken relative to the mean of the first step,
        which is read before the loop, because sums of numbers far from zero are coarse.
        """
        tile = place.tile
        assert tile is not None
        squares, sums, dtype = parts[expr], parts[total], register_type(expr)
        first = Place([], self.root.depth, self.root, place.own, tile, True)
        start = "0" if tile.parts is None else f"z * {tile.parts.length}"
        self._begin(tile, first, f"{start} + tl.arange(0, {tile.block})[None, :]")
        value = f"m.pivot({self._masked(self._value(self._converted(total), first), first, total)})"
        numel = self._size(tile.total) if tile.parts is None else f"{self._size(tile.total)} - {start}"
        first.line(f"{sums}_from = {self._reduced(total, value)} / tl.minimum({numel}, {tile.block})")
        self.root.lines += first.lines
        for name in (squares, sums):
            self.root.line(f"{name} = tl.full([{self._rows(expr)}, {tile.block}], 0, {dtype})")
        self.root.line(f"{sums}_met = tl.full((), 0, {dtype})")
        gap = self._new(place, f"{self._value(self._converted(total), place)} - {sums}_from")
        joined = f"m.joined_squares({squares}, {sums}, {sums}_met, {gap})", f"{sums} + {gap}"
        for name, text in zip((squares, sums), joined, strict=True):
            place.line(f"{name} = {f'tl.where({mask}, {text}, {name})' if (mask := tile.mask) else text}")
        place.line(f"{sums}_met = {sums}_met + 1")

    def _join_lanes(self, expr: Reduce, total: Reduce, tile: Tile, parts: dict[Expr, str]) -> None:
        """The lines that make the sum of all lanes' values, and of the squares of their distances from the mean."""
        squares, sums, dtype = parts[expr], parts[total], register_type(expr)
        numel = self._size(tile.total)
        if tile.parts is not None:
            numel = self._new(self.root, f"tl.minimum({tile.parts.length}, {numel} - first)")
        counts = self._new(self.root, f"m.counts_of_lanes({numel}, {tile.block}).to({dtype})")
        numel = self._new(self.root, f"{numel} + tl.full((), 0, {dtype})")
        lanes = self._new(self.root, self._reduced(total, sums))
        apart = f"m.squares_from({lanes} / {numel}, {squares}, {sums}, {counts})"
        self.root.names[total] = self._new(self.root, f"{lanes} + {numel} * {sums}_from")
        self.root.names[expr] = self._new(self.root, self._reduced(expr, apart))

    def _rows(self, expr: Expr) -> int:
        return self.blocks.x if self.variables.free(expr) & self.root.own else 1

    def _converted(self, expr: Reduce | Scan) -> Expr:
        body = expr.body
        return body if body.dtype == expr.dtype else Cast(body, expr.dtype)

    def _masked(self, value: str, place: Place, expr: Reduce | Scan) -> str:
        """The value over the whole tile, with what changes nothing beyond its end."""
        assert place.tile is not None
        mask = place.tile.mask
        if mask:
            start = f"tl.full((), {identity_of(expr.op, expr.dtype)}, {triton_expr.TYPES[expr.dtype]})"
            return f"tl.where({mask}, {value}, {start})"
        rows = self.blocks.x if isinstance(expr, Scan) else self._rows(expr)
        return f"tl.broadcast_to({value}, [{rows}, {place.tile.block}])"

    def _reduced(self, expr: Reduce, value: str) -> str:
        """A tile reduced along `y`."""
        along = self._along()
        if expr.op in ("any", "all"):
            return f"tl.{'max' if expr.op == 'any' else 'min'}({value}.to(tl.int32), {along}) != 0"
        if expr.op == "sum":
            return f"tl.sum({value}, {along})"
        if expr.op in ("max", "min") and not expr.dtype.is_floating_point:
            return f"tl.{expr.op}({value}, {along})"
        return f"tl.reduce({value}, combine_fn={join_name(expr.op, expr.dtype)}, {along})"

    def _along(self) -> str:
        """How to reduce along `y`: one row leaves a scalar."""
        return "axis=None" if self.blocks.x == 1 else "axis=1, keep_dims=True"

    # ---- stores

    def _sections(self, loop: Loop) -> list[tuple[tuple[Loop, ...], tuple[Store, ...]]]:
        """The stores over each range of the innermost loop in which no index is clamped and no condition on it
        changes.

        What is concatenated along that loop is then copied without a choice.
        """
        stores = self.nest.stores
        is_short = isinstance(loop.extent, Int) and loop.extent.value <= LONGEST_ROW
        ranges = segments(loop, stores) if is_short and not any(map(is_scattered, stores)) else []
        if len(ranges) < 2:
            return [((loop,), stores)]
        found: list[tuple[tuple[Loop, ...], tuple[Store, ...]]] = []
        for number, (first, last) in enumerate(ranges):
            part = Loop(f"{loop.var}_{number}", Int(last - first))
            extents = {**self.extents, part.var: part.extent}
            rename = Renamer(self.variables, {loop.var: Symbol(part.var) + first}, extents)
            moved = (with_expr(replace(s, index=rename.index(s.index)), rename(s.expr)) for s in stores)
            found.append(((part,), tuple(moved)))
        self.blocks = whole_rows(self.blocks, max(last - first for first, last in ranges), self.manner.is_by_row)
        self.nest = replace(self.nest, stores=tuple(store for _, moved in found for store in moved))
        return found

    def _store(self, tile: Tile | None, stores: Sequence[Store]) -> None:
        place, is_loop = self._place_of(tile) if tile is not None else (self.root, False)
        places = [place, *(self._place_of(piece)[0] for piece in (tile.more if tile is not None else ()))]
        asked = [(store, at) for at in places for store in stores]
        found: Iterable[tuple[Place, tuple[str, ...]]] = (self._store_lines(store, at) for store, at in asked)
        if not self._read_ahead(asked):
            found = list(found)  # what is read may be what is written, of the same element
        stored = set[tuple[Place, tuple[str, ...]]]()
        for where, lines in found:
            if (where, lines) not in stored:
                for line in lines:
                    where.line(line)
            stored.add((where, lines))
        if tile is not None and is_loop and place.lines:
            self._end(tile, place)

    def _read_ahead(self, asked: Iterable[tuple[Store, Place]]) -> bool:
        """Reads all that the stores are of, so that each may follow its value. False, with nothing read, if some of it
        is read behind a check or in a loop of its own.

        Triton 3.6 fails on stores of rows that all come last (`TritonGPURemoveLayoutConversions`).
        """
        waiting = [found for store, place in asked for found in self._waiting(store.expr, place)]
        if any(isinstance(expr, Check | Bind | Scan | Reduce) for expr, _ in waiting):
            return False
        for expr, place in waiting:
            if isinstance(expr, Load):
                self._value(expr, place)
        return True

    def _waiting(self, expr: Expr, place: Place) -> Iterator[tuple[Expr, Place]]:
        """The expressions that computing one of them computes, each once."""
        stack, seen = [expr], set[Expr]()
        while stack:
            one = stack.pop()
            if one not in seen and not self._is_computed(one, place):
                seen.add(one)
                stack += reversed(operands(one))
                yield one, place

    def _is_computed(self, expr: Expr, place: Place | None) -> bool:
        while place is not None and expr not in place.names:
            place = place.around
        return place is not None

    def _store_lines(self, store: Store, place: Place, beside: str = "") -> tuple[Place, tuple[str, ...]]:
        """The statements that store, their value and their place computed, and where they belong."""
        free = affine.names(store.index) | self.variables.free(store.expr)
        if not is_scattered(store) and not free & place.own:
            place = self.root
        value = self._value(store.expr, place)
        dtype = self.dtypes[store.buffer]
        index, axes = self._index(store.index, place)
        if is_scattered(store):
            axes |= frozenset("xy" if place.tile else "x")
        axes |= self._axes_of(self.variables.free(store.expr), place)
        mask = self._mask(axes, place)
        edge = self._edge_at(place, Access(store.index, dtype)) if store.mode == "write" else None
        if edge is not None and edge.is_led:
            index = self._led_lane(place)
        pointer = self._pointer(store.buffer, f"{index}{beside}{self._zeros(axes, place)}")
        if dtype is torch.bool:
            value = f"{value}.to(tl.uint8)"
        if store.mode == "write" and edge is not None and mask:
            inner, outer = self._inner_and_outer(edge.width_of(dtype), place)
            in_x = self._mask(axes - {"y"}, place)
            masks = [f"{name}{f' & {in_x}' if in_x else ''}" for name in (inner, outer)]
            return place, tuple(f"tl.store({pointer}, {value}, mask={mask})" for mask in masks)
        masked = f", mask={mask}" if mask else ""
        if store.mode == "write":
            return place, (f"tl.store({pointer}, {value}{masked})",)
        if store.mode == "accumulate" and dtype in ATOMIC:
            return place, (f'tl.atomic_add({pointer}, {value}{masked}, sem="relaxed")',)
        raise Unexpected(f"assay: Triton has no {store.mode} of {dtype} in one element; it must be left to ATen")

    def _edge_at(self, place: Place, access: Access) -> Edge | None:
        """How the rows lie that an access goes along, where it is not 16 bytes at a time as it stands."""
        edge = place.tile.edge if place.tile is not None and place.is_axis else None
        return edge if edge is not None and edge.takes(access) else None

    def _lead_base(self, place: Place) -> str:
        assert place.tile is not None
        return f"base_{place.tile.head}"

    def _led_lane(self, place: Place) -> str:
        """The place of a lane in memory, counted from where its row begins."""
        assert place.tile is not None
        return f"{self._lead_base(place)} + {place.tile.lane}"

    def _bounds(self, tile: Tile) -> tuple[str, str]:
        """The first lane of a row and the one behind its last."""
        total = self._size(tile.total)
        return ("0", total) if tile.lane == tile.name else (lead := self._lead(tile), f"{lead} + {total}")

    def _near(self, width: int, place: Place) -> str:
        """The name of a mask: the lanes up to the end of the last `width` elements that a row has a part in."""
        tile = place.tile
        assert tile is not None
        name = f"near_{tile.number}_{width}"
        if name not in place.masks:
            place.masks.add(name)
            place.line(f"{name} = {tile.lane} < {rounded_up(self._bounds(tile)[1], width)}")
        return name

    def _inner_and_outer(self, width: int, place: Place) -> tuple[str, str]:
        """The names of two masks: the lanes of whole `width` elements of a row, and the others."""
        tile = place.tile
        assert tile is not None
        inner, outer = f"inner_{tile.number}_{width}", f"outer_{tile.number}_{width}"
        if inner not in place.masks:
            place.masks.add(inner)
            first, end = self._bounds(tile)
            behind = f"({tile.lane} >= {rounded_up(first, width)}) & " if first != "0" else ""
            place.line(f"{inner} = {behind}({tile.lane} < {rounded_down(end, width)})")
            place.line(f"{outer} = {tile.mask} & ~{inner}")
        return inner, outer

    def _zeros(self, axes: frozenset[str], place: Place) -> str:
        """What gives an index the shape of all that is stored."""
        shape = self._shape(axes, place)
        return f" + tl.zeros({shape}, {self.int_type})" if shape != "()" else ""

    def _shape(self, axes: frozenset[str], place: Place) -> str:
        """The shape of what varies along axes; nothing has one where a tile is one row and it varies along no other."""
        columns = place.tile.block if "y" in axes and place.tile else 1
        if self.blocks.x == 1 and "y" not in axes:
            return "()"
        return f"[{self.blocks.x if 'x' in axes else 1}, {columns}]"

    # ---- values

    def _value(self, expr: Expr, place: Place) -> str:
        """The name of a value, computed in the outermost place where all that it depends on is known."""
        free = self.variables.free(expr)
        while place.around is not None and not free & place.own and expr not in place.names:
            place = place.around
        if expr not in place.names:
            place.names[expr] = self._made(expr, place)
        return place.names[expr]

    def _made(self, expr: Expr, place: Place) -> str:
        match expr:
            case Load():
                return self._new(place, self._load(expr, place))
            case Const(value, dtype):
                return self._new(place, triton_expr.constant(value, dtype))
            case Call():
                if expr.op == "philox":
                    return self._new(place, self._philox(expr, place))
                operands = [self._value(arg, place) for arg in expr.args]
                is_narrow = self.is_narrow or (self.are_halves_summed and is_power(expr))
                return self._new(place, triton_expr.call(expr, operands, is_narrow))
            case Cast(inner, dtype):
                return self._new(place, triton_expr.cast(self._value(inner, place), inner.dtype, dtype))
            case AsValue(index, dtype):
                text, axes = self._index(index, place, is_value=True)
                whole = text if axes else f"tl.full((), {text}, tl.int64)"
                kind = triton_expr.TYPES[dtype]
                return self._new(place, f"{parenthesized(whole)}.to({kind})")
            case Bind():
                return self._value(expr.body, place)
            case Check():
                self._check(expr, place)
                return self._value(expr.expr, place)
            case Scan():
                return self._scan(expr, place)
            case Reduce():
                return self._sequential(expr, place)
        raise AssertionError(expr)

    def _philox(self, expr: Call, place: Place) -> str:
        seed, start, position, *launch = expr.args
        assert isinstance(position, AsValue) and all(isinstance(size, Const) for size in launch)
        threads, width = (size.value for size in launch if isinstance(size, Const))
        text, axes = self._index(position.index, place)
        whole = f"tl.broadcast_to({text}, {self._shape(axes, place)})" if axes else f"tl.full((), {text}, tl.int64)"
        many = self._neighbours(position.index, place) if width % 4 == 0 else 1
        name = {1: "philox", 4: "philox_of_fours", 8: "philox_of_eights"}[many]
        return f"m.{name}({self._value(seed, place)}, {self._value(start, place)}, {whole}, {threads}, {width})"

    def _neighbours(self, position: Index, place: Place) -> int:
        """How many neighbours along `y` begin at a multiple of their number: as many as a thread reads at once."""
        tile = place.tile
        if tile is None or not place.is_axis:
            return 1
        inner = tile.loops[-1]
        start = affine.substitute(position, {inner.var: Int(0)})
        if affine.stride(position, inner.var) != Int(1):
            return 1
        for many in (8, 4) if self.is_narrow else (4,):
            is_whole = len(tile.loops) == 1 or inner.extent % many == Int(0)
            if start % many == Int(0) and is_whole and tile.block % many == 0:
                return many
        return 1

    def _new(self, place: Place, text: str) -> str:
        name = f"v{self.count}"
        self.count += 1
        place.line(f"{name} = {text}")
        return name

    def _load(self, expr: Load, place: Place) -> str:
        index, axes = self._index(expr.index, place)
        mask = self._mask(axes, place)
        edge = self._edge_at(place, Access(expr.index, self.dtypes[expr.buffer]))
        if edge is not None and mask:
            near, in_x = self._near(edge.width_of(self.dtypes[expr.buffer]), place), self._mask(axes - {"y"}, place)
            mask = f"{near} & {in_x}" if in_x else near
            index = self._led_lane(place) if edge.is_led else index
        text = f"tl.load({self._pointer(expr.buffer, index)}{f', mask={mask}, other=0' if mask else ''})"
        return f"{text} != 0" if self.dtypes[expr.buffer] is torch.bool else text

    def _pointer(self, buffer: str, index: str) -> str:
        return f"{buffer} + {parenthesized(index)}"

    def _mask(self, axes: frozenset[str], place: Place) -> str:
        parts = ["in_x"] if "x" in axes and self._is_x_masked() else []
        if "y" in axes and place.tile is not None and place.tile.mask:
            parts.append(place.tile.mask)
        return " & ".join(parts)

    def _is_x_masked(self) -> bool:
        total = self._x_total()
        return self.blocks.x > 1 and not (isinstance(total, Int) and total.value % self.blocks.x == 0)

    def _check(self, expr: Check, place: Place) -> None:
        """Stops the device where a condition does not hold. An integer divided by 0 raises nothing on a GPU."""
        if expr.failure == "zero division":
            return
        self.checks = True
        condition = self._value(expr.condition, place)
        mask = self._mask(self._axes_of(self.variables.free(expr.condition), place), place)
        whole = f"{condition} | ~({mask})" if mask else condition
        place.line(f"tl.device_assert({whole}, {FAILURES[expr.failure][1]!r})")

    def _scan(self, expr: Scan, place: Place) -> str:
        assert place.tile is not None
        start = identity_of(expr.op, expr.dtype)
        value = self._masked(self._value(self._converted(expr), place), place, expr)
        given = self._new(place, value)
        join = scan_join_name(expr.op, expr.dtype)
        scanned = f"tl.cumsum({given}, 1)" if expr.op == "sum" else f"tl.associative_scan({given}, 1, {join})"
        if place.tile.way != "steps":
            begins_at_zero = expr.op == "sum" and expr.dtype.is_floating_point  # and so -0 becomes 0
            return self._new(place, f"{scanned} + 0.0" if begins_at_zero else scanned)
        carry = f"carry_{self.count}"
        shape = self._shape(frozenset("x"), place)
        self.root.line(f"{carry} = tl.full({shape}, {start}, {triton_expr.TYPES[expr.dtype]})")
        result = self._new(place, f"{join}({carry}, {scanned})")
        place.line(f"{carry} = {join}({carry}, tl.reduce({given}, combine_fn={join}, {self._along()}))")
        return result

    def _sequential(self, expr: Reduce, place: Place) -> str:
        """A reduction as a loop over what varies around it. One over nothing reads nothing, for there may be no memory:
        what its loop does not vary would be read before it."""
        free = self.variables.free(expr)
        axes = self._axes_of(free, place)
        total, number = product(tuple(loop.extent for loop in expr.loops)), self.count
        self.count += 1
        part, step = f"part_{number}", f"s_{number}"
        start = identity_of(expr.op, expr.dtype)
        place.line(f"{part} = tl.full({self._shape(axes, place)}, {start}, {register_type(expr)})")
        if total == Int(0):
            return self._new(place, f"{part} != 0") if expr.op in ("any", "all") else part
        inside = Place([], place.depth + 1, place, frozenset(loop.var for loop in expr.loops), place.tile)
        is_short = isinstance(total, Int) and total.value <= UNROLLED
        self._decode(inside, step, expr.loops)
        value = self._value(self._converted(expr), inside)
        inside.line(f"{part} = {joined_text(expr, part, value)}")
        place.line(f"for {step} in {'tl.static_range' if is_short else 'range'}({self._size(total)}):")
        place.lines += inside.lines
        return self._new(place, f"{part} != 0") if expr.op in ("any", "all") else part

    # ---- indices

    def _axes_of(self, names: frozenset[str], place: Place) -> frozenset[str]:
        """The axes along which something varies: of a variable that several have, the innermost's counts."""
        axes, left, at = set(), names, place
        while at.around is not None:
            if left & at.own and at.is_axis:
                axes.add("y")
            left, at = left - at.own, at.around
        return frozenset(axes | ({"x"} if left & self.x_vars else set()))

    def _index(self, index: Index, place: Place, is_value: bool = False) -> tuple[str, frozenset[str]]:
        """The text of an index, and the axes along which it varies. As a value it may be beyond all sizes."""
        names = affine.names(index)
        for name in names & self.variables.positions.keys():
            names |= self.variables.free(self.variables.positions[name])
        if is_value and triton_index.may_outgrow(index, self.kernel.symbols):
            text = triton_index.text_of(index, lambda name: self._whole(name, place), self.extents)
        else:
            text = self._text_of(index, place)
        return text, self._axes_of(names, place)

    def _whole(self, name: str, place: Place) -> str:
        """A variable in 64 bits, if it is a number that the kernel is called with."""
        text = self._variable(name, place)
        return f"tl.full((), {name}, tl.int64)" if text == name else text

    def _text_of(self, index: Index, place: Place) -> str:
        return triton_index.text_of(index, lambda name: self._variable(name, place), self.extents)

    def _variable(self, name: str, place: Place) -> str:
        """The text of a variable: a loop's, one that data gives, or a size."""
        if name in self.variables.positions:
            return self._bound(name, place)
        at: Place | None = place
        while at is not None:
            if name in at.indices:
                return at.indices[name]
            if name in at.own:
                return self._decoded(name, at)
            at = at.around
        return name

    def _bound(self, name: str, place: Place) -> str:
        position = self.variables.positions[name]
        free = self.variables.free(position)
        while place.around is not None and not free & place.own:
            place = place.around
        if name not in place.indices:
            value = self._value(position, place)
            extent = self._size(self._extent_of(name))
            text = f"tl.where(({value} >= 0) & ({value} < {extent}), {value}, 0).to({self.int_type})"
            place.indices[name] = self._new(place, text)
        return place.indices[name]

    def _extent_of(self, name: str) -> Index:
        for expr in subexpressions([*(s.expr for s in self.nest.stores), *self.variables.positions.values()]):
            if isinstance(expr, Bind) and expr.loop.var == name:
                return expr.loop.extent
        raise AssertionError(name)

    def _decoded(self, name: str, place: Place) -> str:
        """A loop's variable from the number that its axis has."""
        if place is self.root:
            is_x = name in self.x_vars
            self._decode(place, "x" if is_x else "z", self.x_loops if is_x else self.z_loops)
        elif place.tile is not None and name in {loop.var for loop in place.tile.loops}:
            self._decode(place, place.tile.name, place.tile.loops)
        return place.indices[name]

    def _decode(self, place: Place, flat: str, loops: Sequence[Loop]) -> None:
        rest = flat
        for at, loop in reversed(list(enumerate(loops))):
            if at == 0:
                place.indices[loop.var] = rest
                return
            size = self._size(loop.extent)
            name = self._new(place, f"{rest} % {size}")
            place.indices[loop.var] = name
            rest = self._new(place, f"{rest} // {size}")

    def _size(self, index: Index) -> str:
        """The text of a number that depends on sizes alone, as an operand."""
        return triton_index.factor_of(index, lambda name: name, self.extents)

    # ---- the whole

    def _count(self, blocks: Index) -> str:
        """The text of what the number of an instance is divided by: of no instances too one that is not 0, at which
        the compiler of the text would stop."""
        return "1" if blocks == Int(0) else self._size(blocks)

    def _grid(self, store_tile: Tile | None) -> Index:
        grid = product(tuple(loop.extent for loop in self.z_loops)) * self._blocks_of(self._x_total(), self.blocks.x)
        if store_tile is not None and store_tile.way == "grid":
            grid = grid * self._blocks_of(store_tile.lanes, store_tile.block)
        return grid

    def _x_total(self) -> Index:
        return product(tuple(loop.extent for loop in self.x_loops))

    def _blocks_of(self, total: Index, block: int) -> Index:
        return (total + (block - 1)) // block

    def _text(self, store_tile: Tile | None, parts: Parts | None = None) -> str:
        arguments = ", ".join([*(b.name for b in self.kernel.buffers), *self.kernel.symbols])
        head = Place([], 1, None, frozenset(), None)
        if self.manner.is_called:
            arguments = f"pid, {arguments}"
        else:
            head.line(f"pid = {self.manner.number}")
        rest = "pid"
        if store_tile is not None and store_tile.way == "grid":
            count = self._count(self._blocks_of(store_tile.lanes, store_tile.block))
            head.line(f"y{store_tile.number} = ({rest} % {count}) * {store_tile.block}")
            rest = f"({rest} // {count})"
        if parts is not None:
            head.line(f"z = {rest} % {parts.count}")
            rest = f"({rest} // {parts.count})"
        if self.z_loops:
            count = self._count(self._blocks_of(self._x_total(), self.blocks.x))
            head.line(f"z = {rest} // {count}")
            rest = f"({rest} % {count})"
        if self.x_loops and self.blocks.x == 1:
            head.line(f"x = {rest}")
        elif self.x_loops:
            head.line(f"x = {rest} * {self.blocks.x} + tl.arange(0, {self.blocks.x})[:, None]")
            if self._is_x_masked():
                head.line(f"in_x = x < {self._size(self._x_total())}")
        origins = [f"    # {origin}" for origin in self.kernel.origins]
        return "\n".join(["@triton.jit", f"def {self.name}({arguments}):", *origins, *head.lines, *self.root.lines, ""])
