"""`tile_function`: a kernel over the elements of a tile, as a Triton function that a program calls for its own tile.

    scores[i, j] = tanh(scores[i, j]) + bias[first + i]    ->    def changed(scores, row, column, is_in, t0):
                                                                     v0 = d.tanh(scores)
                                                                     v1 = tl.load(t0 + row)
                                                                     return v0 + v1

The tile's own buffers come as values and go as results; other buffers are addresses. `row` and `column` are the
positions of the tile's elements along its two axes, of shapes that broadcast, and `is_in` says which elements there
are. A sum into a buffer is by atomic additions. Values are summed first along the axes that their place does not vary
along. Rows have to be the tile's first axis there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch

from assay.compiler.codegen.loops import affine
from assay.compiler.codegen.loops.narrow import Narrower
from assay.compiler.codegen.loops.renamer import Variables
from assay.compiler.codegen.triton import expressions as triton_expr
from assay.compiler.codegen.triton import indices as triton_index
from assay.compiler.codegen.triton.tiles import parenthesized
from assay.compiler.errors import Unexpected
from assay.compiler.ir.loops.failures import FAILURES
from assay.compiler.ir.loops.index import Index, Int, Symbol
from assay.compiler.ir.loops.kernel import AsValue, Bind, Call, Cast, Check, Const, Expr, Kernel, Load, Store
from assay.compiler.ir.loops.rewrite import Substitution, free_variables, nodes

MOST = 1 << 29
"""Positions and sizes are below this where indices have 32 bits: sums and differences of a few have them then too."""
BOTH = frozenset(("row", "column"))
HELD = (Load, Const, Call, Cast, AsValue, Bind, Check)


@dataclass(frozen=True, slots=True)
class Tile:
    """How a kernel's names stand for a tile.

    `buffers` are the tile's own. The sums of `rows` and of `columns` are its parameters `row` and `column`, `numbers`
    are parameters of the same name, and `sizes` are symbols that the function has no use for.
    """

    buffers: tuple[str, ...]
    rows: tuple[str, str]
    columns: tuple[str, str]
    numbers: tuple[str, ...]
    sizes: tuple[str, ...]

    @property
    def symbols(self) -> tuple[str, ...]:
        return (*self.rows, *self.columns, *self.numbers)


@dataclass(frozen=True, slots=True)
class TileFunction:
    """A function's text, and whether it has checks that stop the device."""

    text: str
    has_checks: bool


def takes(kernel: Kernel) -> bool:
    """Whether Triton has text for all that a kernel computes."""
    found = nodes(*(store.expr for store in kernel.stores))
    return all(isinstance(each, HELD) and _is_known(each) for each in found)


def _is_known(expr: Expr) -> bool:
    if isinstance(expr, Call):
        return expr.op != "philox" and triton_expr.is_supported(expr.op, expr.args[0].dtype)
    return expr.dtype in triton_expr.TYPES


def tile_function(kernel: Kernel, tile: Tile, is_wide: bool) -> TileFunction:
    """The function `kernel.name`. After `is_in` it takes the kernel's other buffers, then its other symbols. With
    `is_wide` indices have 64 bits; otherwise positions and numbers are below `MOST`.

    Raises: Unexpected where `takes` does not hold.
    """
    return _Emitter(kernel, tile, is_wide).run()


@dataclass(frozen=True, slots=True)
class _Named:
    """The name of a value, and the axes along which it varies."""

    name: str
    axes: frozenset[str]


_Environment = Mapping[str, _Named]
"""The variables that are known where something is computed."""


class _Emitter:
    def __init__(self, kernel: Kernel, tile: Tile, is_wide: bool) -> None:
        self._kernel, self._tile, self._is_wide = kernel, tile, is_wide
        others = [buffer.name for buffer in kernel.buffers if buffer.name not in tile.buffers]
        numbers = [symbol for symbol in kernel.symbols if symbol not in (*tile.symbols, *tile.sizes)]
        self._addresses = {name: f"t{n}" for n, name in enumerate(others)}
        self._numbers = {name: f"n{n}" for n, name in enumerate(numbers)}
        self._dtypes = {buffer.name: buffer.dtype for buffer in kernel.buffers}
        self._places: dict[str, Index] = dict.fromkeys((*tile.rows, *tile.columns), Int(0))
        self._places |= {tile.rows[0]: Symbol("row"), tile.columns[0]: Symbol("column")}
        known = {name: _Named(name, frozenset((name,))) for name in BOTH}
        known |= {name: _Named(name, frozenset()) for name in tile.numbers}
        self._known: dict[str, _Named] = known | {k: _Named(v, frozenset()) for k, v in self._numbers.items()}
        self._extents: dict[str, Index] = {} if is_wide else dict.fromkeys(self._known, Int(MOST))
        self._lines: list[str] = []
        self._free: dict[Expr, frozenset[str]] = {}
        self._made: dict[tuple[Expr, tuple[tuple[str, str], ...]], _Named] = {}
        self._count = 0
        self._has_checks = False

    def run(self) -> TileFunction:
        place = Substitution(self._places, {})
        stores = [replace(store, expr=place(store.expr)) for store in self._kernel.stores]
        written = [self._value(self._narrow(s.expr), self._known).name for s in stores if s.mode == "write"]
        for store in stores:
            if store.mode != "write":
                self._add(store)
        parameters = [*self._tile.buffers, *self._tile.numbers, "row", "column", "is_in"]
        parameters += [*self._addresses.values(), *self._numbers.values()]
        head = ["@triton.jit", f"def {self._kernel.name}({', '.join(parameters)}):"]
        result = [f"    return {', '.join(written)}"] if written else []
        return TileFunction("\n".join([*head, *self._lines, *result, ""]), self._has_checks)

    def _narrow(self, expr: Expr) -> Expr:
        """The expression with what is proven to be small in 32 bits."""
        return expr if self._is_wide else Narrower(Variables(), self._extents)(expr)

    # ---- sums

    def _add(self, store: Store) -> None:
        """Adds a value to an element of memory, whose variables are bound around the value."""
        if store.mode != "accumulate":
            raise Unexpected(f"assay: a function of a tile has no {store.mode}; it must be left to a kernel")
        expr, known = store.expr, dict(self._known)
        while isinstance(expr, Bind):
            known[expr.loop.var] = self._bound(expr, known)
            expr = expr.body
        index = affine.substitute(store.index, self._places)
        place, axes = self._index(index, known), self._axes(index, known)
        value = self._new(f"tl.where(is_in, {self._value(self._narrow(expr), known).name}, 0.0)")
        for along, axis in (("column", 1), ("row", 0)):
            if along not in axes:
                value = self._new(f"tl.sum({value}, {axis}, keep_dims=True)")
        pointer = f"{self._address(store.buffer)} + {parenthesized(place)}"
        shaped = self._new(f"{pointer} + tl.zeros_like({value}).to(tl.int32)")
        self._line(f'tl.atomic_add({shaped}, {value}, sem="relaxed")')

    # ---- values

    def _value(self, expr: Expr, known: _Environment) -> _Named:
        bound = sorted((name, known[name].name) for name in free_variables(expr, self._free) if name in known)
        key = expr, tuple(bound)
        if key not in self._made:
            self._made[key] = self._computed(expr, known)
        return self._made[key]

    def _computed(self, expr: Expr, known: _Environment) -> _Named:
        match expr:
            case Load(buffer) if buffer in self._tile.buffers:
                return _Named(buffer, BOTH)
            case Load(buffer, index):
                text = f"tl.load({self._address(buffer)} + {parenthesized(self._index(index, known))})"
                text = f"{text} != 0" if self._dtypes[buffer] is torch.bool else text
                return _Named(self._new(text), self._axes(index, known))
            case Const(value, dtype):
                return _Named(self._new(triton_expr.constant(value, dtype)), frozenset())
            case Call(_, args):
                operands = [self._value(arg, known) for arg in args]
                text = triton_expr.call(expr, [operand.name for operand in operands])
                return _Named(self._new(text), frozenset().union(*(operand.axes for operand in operands)))
            case Cast(inner, dtype):
                operand = self._value(inner, known)
                return _Named(self._new(triton_expr.cast(operand.name, inner.dtype, dtype)), operand.axes)
            case AsValue(index, dtype):
                axes = self._axes(index, known)
                whole = f"({self._index(index, known)} + tl.full((), 0, tl.int32))"
                return _Named(self._new(f"{whole}.to({triton_expr.TYPES[dtype]})"), axes)
            case Bind(loop, _, body):
                return self._value(body, {**known, loop.var: self._bound(expr, known)})
            case Check():
                self._check(expr, known)
                return self._value(expr.expr, known)
        raise Unexpected(f"assay: a function of a tile has no {type(expr).__name__}; it must be left to a kernel")

    def _bound(self, expr: Bind, known: _Environment) -> _Named:
        """The variable that a position gives a value: 0 where the position is out of range."""
        position = self._value(self._narrow_position(expr.position), known)
        extent = parenthesized(self._index(expr.loop.extent, known))
        is_inside = f"({position.name} >= 0) & ({position.name} < {extent})"
        kind = "tl.int64" if self._is_wide else "tl.int32"
        return _Named(self._new(f"tl.where({is_inside}, {position.name}, 0).to({kind})"), position.axes)

    def _narrow_position(self, position: Expr) -> Expr:
        if self._is_wide or Narrower(Variables(), self._extents).interval(position) is None:
            return self._narrow(position)
        return self._narrow(Cast(position, torch.int32))

    def _check(self, expr: Check, known: _Environment) -> None:
        """Stops the device where a condition does not hold. An integer divided by 0 raises nothing on a GPU."""
        if expr.failure != "zero division":
            self._has_checks = True
            condition = self._value(expr.condition, known)
            self._line(f"tl.device_assert({condition.name} | (is_in == 0), {FAILURES[expr.failure][1]!r})")

    # ---- indices

    def _index(self, index: Index, known: _Environment) -> str:
        return triton_index.text_of(index, lambda name: known[name].name, self._extents)

    def _axes(self, index: Index, known: _Environment) -> frozenset[str]:
        return frozenset().union(*(known[name].axes for name in affine.names(index)))

    def _address(self, buffer: str) -> str:
        return self._addresses[buffer]

    def _new(self, text: str) -> str:
        name = f"v{self._count}"
        self._count += 1
        self._line(f"{name} = {text}")
        return name

    def _line(self, text: str) -> None:
        self._lines.append(f"    {text}")
