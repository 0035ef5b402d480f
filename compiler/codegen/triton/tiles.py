"""What a Triton program is made of: tiles, places that values are computed in, reductions in parts, and their text."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import torch

from assay.compiler.codegen.loops import affine
from assay.compiler.codegen.loops.renamer import operands, subexpressions
from assay.compiler.codegen.triton import expressions as triton_expr
from assay.compiler.codegen.triton.row_edges import Edge
from assay.compiler.ir.loops.index import Index, Int, Symbol, minimum, product
from assay.compiler.ir.loops.kernel import (
    AsValue,
    Bind,
    Buffer,
    Call,
    Cast,
    Check,
    Const,
    Expr,
    Load,
    Loop,
    Reduce,
    Store,
)


@dataclass(frozen=True, slots=True)
class Program:
    """One launch. `text` defines the function `name` of the buffers and then the symbols of the kernel; `grid` is how
    many instances run, with `warps` warps each; `checks` says whether it stops the device where a check fails.
    `workspace` are further arguments between the buffers and the symbols: memory that the kernel's launches share.
    `stages` is how many steps of its loops have their loads under way, 0 as many as Triton wants."""

    name: str
    text: str
    grid: Index
    warps: int
    checks: bool
    workspace: tuple[Buffer, ...] = ()
    stages: int = 0


@dataclass(slots=True, eq=False)
class Tile:
    """What one `y` of a program runs over: the loops, outermost first, and how it does.

    `way`: `whole` in one block, in `steps` of a loop in the program, or each block in an instance of its own (`grid`).
    """

    number: int
    loops: tuple[Loop, ...]
    block: int
    way: str
    parts: Parts | None = None
    edge: Edge | None = None
    begins: int = 0
    more: list[Tile] = field(default_factory=list)
    """What is left of a whole row that this tile holds the beginning of."""
    head: int = 0
    """The number of the tile that holds the beginning of the row."""

    @property
    def total(self) -> Index:
        return product(tuple(loop.extent for loop in self.loops))

    @property
    def lanes(self) -> Index:
        """What its instances or steps run over."""
        return self.total if self.edge is None else self.edge.lanes

    @property
    def lane(self) -> str:
        """The name of its numbers, counted from where its rows are read from."""
        return f"k_{self.number}" if self.edge is not None and self.edge.is_led else self.name

    @property
    def name(self) -> str:
        return f"y_{self.number}"

    @property
    def mask(self) -> str | None:
        """The name of the mask, where some lanes may be beyond the end."""
        total = self.total
        is_led = self.edge is not None and self.edge.is_led
        end = self.begins + self.block
        is_full = isinstance(total, Int) and (end <= total.value if self.way == "whole" else total.value % end == 0)
        return None if is_full and not is_led else f"in_{self.name}"


@dataclass(slots=True, eq=False)
class Place:
    """Where values are computed: the lines being written, the names of the values there, and the variables that vary.

    These vary there and not around it: along `y` if it `is_axis`, else from one iteration to the next.
    """

    lines: list[str]
    depth: int
    around: Place | None
    own: frozenset[str]
    tile: Tile | None
    is_axis: bool = False
    names: dict[Expr, str] = field(default_factory=dict)
    indices: dict[str, str] = field(default_factory=dict)
    masks: set[str] = field(default_factory=set)

    def line(self, text: str) -> None:
        self.lines.append("    " * self.depth + text)


@dataclass(frozen=True, slots=True)
class Parts:
    """Long reductions of few rows, each computed in `count` parts of `length` elements by instances of their own.

    The parts of a reduction are a buffer of so many parts by `rows`, which the next program reduces.
    """

    reductions: tuple[Reduce, ...]
    buffers: tuple[Buffer, ...]
    count: int
    length: int
    row: Index
    rows: Index

    def joined(self, store: Store) -> Store:
        """The store with each reduction made from its parts."""
        loop = Loop(f"part{len(self.buffers)}_{self.buffers[0].name}", Int(self.count))
        made: dict[Expr, Expr] = {}
        elements: dict[Expr, Expr] = {}
        for reduction, buffer in zip(self.reductions, self.buffers, strict=True):
            element = Load(buffer.name, Symbol(loop.var) * self.rows + self.row, reduction.dtype)
            elements[reduction] = element
            made[reduction] = Reduce(reduction.op, (loop,), element, reduction.dtype)
        for reduction in self.reductions:
            total = sum_of_moment(reduction)
            if total is not None and total in made:
                own = elements[reduction], elements[total]
                body = self._squares(reduction, own, made[total], Symbol(loop.var))
                made[reduction] = Reduce("sum", (loop,), body, reduction.dtype)
        return replace(store, expr=replaced(store.expr, made))

    def _squares(self, reduction: Reduce, own: tuple[Expr, Expr], total: Expr, part: Index) -> Expr:
        """The squares of the distances of a part's values from the mean of all. Of the part's `own` there are those
        from its mean, and its sum."""
        numel, dtype = product(tuple(loop.extent for loop in reduction.loops)), reduction.dtype
        assert isinstance(numel, Int)
        length: Index = Int(self.length)
        if numel.value % self.length:
            length = minimum(length, Int(numel.value) - part * self.length)

        def call(op: str, *args: Expr) -> Expr:
            return Call(op, args, dtype)

        size = Const(length.value, dtype) if isinstance(length, Int) else AsValue(length, dtype)
        squares, sums = own
        ahead = call("sub", call("div", sums, size), call("div", total, Const(numel.value, dtype)))
        return call("add", squares, call("mul", size, call("mul", ahead, ahead)))


def replaced(expr: Expr, made: dict[Expr, Expr]) -> Expr:
    """An interned expression with others in the place of some of its parts."""
    if expr not in made:
        match expr:
            case Call():
                new: Expr = replace(expr, args=tuple(replaced(arg, made) for arg in expr.args))
            case Cast():
                new = replace(expr, expr=replaced(expr.expr, made))
            case Check():
                inner, condition = (replaced(e, made) for e in (expr.expr, expr.condition))
                new = replace(expr, expr=inner, condition=condition)
            case Bind():
                new = replace(expr, body=replaced(expr.body, made))
            case Reduce():
                new = replace(expr, body=replaced(expr.body, made))
            case _:
                new = expr
        made[expr] = new
    return made[expr]


def contiguous_across(stores: Sequence[Store], others: Sequence[Loop], inner: Loop) -> Loop | None:
    """The loop along which some access is contiguous that is not along the inner one."""
    exprs = subexpressions(store.expr for store in stores)
    found = [*(e.index for e in exprs if isinstance(e, Load)), *(store.index for store in stores)]
    apart = [index for index in found if affine.stride(index, inner.var) not in (Int(0), Int(1))]
    for loop in others:
        if any(affine.stride(index, loop.var) == Int(1) for index in apart):
            return loop
    return None


def held_at_once(stores: Sequence[Store]) -> int:
    """How many values there are at once, where those of the stores are computed in order before any is stored."""
    found = [e for e in subexpressions(store.expr for store in stores) if not isinstance(e, Const | AsValue)]
    last = {operand: at for at, e in enumerate(found) for operand in operands(e)}
    last |= {store.expr: len(found) for store in stores}
    ended = Counter(last.get(e, len(found)) for e in found)
    held = most = 0
    for at in range(len(found)):
        held += 1
        most = max(most, held)
        held -= ended[at]
    return most


def peak_of(expr: Reduce) -> Reduce | None:
    """The greatest exponent of a sum of powers that are taken relative to it."""
    match expr:
        case Reduce("sum", loops, Call("exp", (Call("sub", (value, Reduce("max") as peak)),))):
            return peak if peak.body is value and peak.loops == loops and peak.dtype == expr.dtype else None
    return None


def sum_of_moment(expr: Reduce) -> Reduce | None:
    """The sum of what a sum of squares is taken of, where that is of its distances from its mean."""
    match expr:
        case Reduce("sum", loops, Call("mul", (gap, other))) if gap is other:
            match gap:
                case Call("sub", (value, Call("div", (Reduce("sum") as total, Const(count))))):
                    numel = product(tuple(loop.extent for loop in loops))
                    is_whole = isinstance(numel, Int) and numel.value == count and expr.dtype.is_floating_point
                    is_its = total.body is value and total.loops == loops and total.dtype == expr.dtype
                    return total if is_whole and is_its else None
    return None


def is_power(expr: Call) -> bool:
    """Whether it is a power relative to the greatest of a row, which sums to 1 or more."""
    match expr:
        case Call("exp", (Call("sub", (value, Reduce("max") as peak)),)):
            return peak.body is value
    return False


def levels_of(reductions: Sequence[Reduce]) -> list[list[Reduce]]:
    """The reductions, each after those that it waits for; together what waits for nothing in between."""
    wanted = set(reductions)
    level: dict[Expr, int] = {}
    for expr in reductions:
        inside = [e for e in subexpressions([expr.body]) if e in wanted]
        level[expr] = 1 + max((level[e] for e in inside), default=-1)
    found: list[list[Reduce]] = [[] for _ in range(max(level.values(), default=-1) + 1)]
    for expr in reductions:
        found[level[expr]].append(expr)
    return found


def parenthesized(text: str) -> str:
    return text if re.fullmatch(r"\w+", text) else f"({text})"


def register_type(expr: Reduce) -> str:
    return "tl.int32" if expr.op in ("any", "all") else triton_expr.TYPES[expr.dtype]


def identity_of(op: str, dtype: torch.dtype) -> str:
    """What joined with a value leaves it."""
    if op in ("any", "all"):
        return str(int(op == "all"))
    if op in ("sum", "prod"):
        return str(int(op == "prod"))
    is_low = op in ("max", "logaddexp")
    if dtype.is_floating_point:
        return f'float("{"-" * is_low}inf")'
    info = torch.iinfo(dtype) if dtype is not torch.bool else torch.iinfo(torch.uint8)
    return str(info.min if is_low else info.max)


def join_name(op: str, dtype: torch.dtype) -> str:
    return f"m.joined_{op}{'' if dtype.is_floating_point or op not in ('max', 'min') else '_int'}"


def scan_join_name(op: str, dtype: torch.dtype) -> str:
    """What joins two neighbouring parts of a scan."""
    return f"m.scanned_{op}" if dtype.is_floating_point and op in ("max", "min") else join_name(op, dtype)


def joined_results(expr: Reduce, a: str, b: str) -> str:
    """Two results of a reduction as one."""
    if expr.op in ("any", "all"):
        return f"{a} {'|' if expr.op == 'any' else '&'} {b}"
    return joined_text(expr, a, b)


def joined_text(expr: Reduce, part: str, value: str) -> str:
    if expr.op in ("any", "all"):
        return f"{part} {'|' if expr.op == 'any' else '&'} {value}.to(tl.int32)"
    if expr.op in ("sum", "prod"):
        return f"{part} {'+' if expr.op == 'sum' else '*'} {value}"
    return f"{join_name(expr.op, expr.dtype)}({part}, {value})"
