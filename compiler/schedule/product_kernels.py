"""The kernel of a product of matrices with the pointwise kernels around it: one sum, and what is computed of it.

    a[m, k] = f(x);  p = mm(a, w);  y[m, n] = g(p[m, n], r)    ->    y[m, n] = g(sum_k f(x[m, k]) * w[k, n], r)

The loops of the kernels around are written by those of the product: `Walk` says which iteration has an element.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch

from assay.compiler.ir.loops.index import (
    ONE,
    ZERO,
    Index,
    Int,
    Ranges,
    Symbol,
    coefficient,
    floordiv,
    mod,
    substitute,
    total,
)
from assay.compiler.ir.loops.kernel import (
    AsValue,
    Bind,
    Call,
    CallAten,
    Cast,
    Check,
    Expr,
    Launch,
    Load,
    Loop,
    Reduce,
    Scan,
    Store,
)
from assay.compiler.ir.loops.lowered import Tensor
from assay.compiler.ir.loops.rewrite import ROUNDED_FIRST, call, constant, convert, map_children, map_indices, nodes
from assay.compiler.schedule.layout import Bound, canonical

BATCH, ROW, COLUMN, TERM = (Symbol(name) for name in ("z", "m", "n", "k"))


def numbers(sizes: Sequence[Index]) -> list[int]:
    """Sizes that are numbers."""
    return [size.value for size in sizes if isinstance(size, Int)]


def written_by(launch: Launch) -> list[str]:
    """The tensors that a launch writes."""
    names = tensors_of(launch)
    return list(dict.fromkeys(names[store.buffer] for store in launch.kernel.stores))


def tensors_of(launch: Launch) -> dict[str, str]:
    """The tensors of a launch by the names that they have in its kernel."""
    return dict(zip((buffer.name for buffer in launch.kernel.buffers), launch.arguments, strict=True))


def offsets_of(launch: Launch) -> dict[str, int]:
    """How far behind its tensor's first element each buffer of a launch begins."""
    offsets = launch.offsets or (0,) * len(launch.arguments)
    return dict(zip((buffer.name for buffer in launch.kernel.buffers), offsets, strict=True))


def is_pointwise(launch: Launch) -> bool:
    """Whether a kernel of known sizes computes each element by itself, and checks nothing."""
    kernel = launch.kernel
    found = nodes(*(store.expr for store in kernel.stores))
    is_plain = not any(isinstance(node, Reduce | Scan | Bind | Check) for node in found)
    return is_plain and not kernel.symbols and all(store.mode == "write" for store in kernel.stores)


@dataclass(frozen=True, slots=True)
class Walk:
    """Loops that together go over the memory of a tensor, each element once: their steps in it, extents and names."""

    loops: tuple[tuple[int, int, str], ...]

    def at(self, place: Index, ranges: Ranges) -> dict[str, Index]:
        """What each loop's variable is where the element of that place has its turn."""
        found: dict[str, Index] = {}
        for step, extent, var in self.loops:
            found[var] = mod(floordiv(place, Int(step), ranges), Int(extent), ranges)
        return found


def walk_of(launch: Launch, name: str, count: int, is_stored: bool = False) -> Walk | None:
    """How a kernel goes over a tensor of so many elements that it reads, or stores; None where not each iteration has
    one of its own, or some has none."""
    names, offsets = tensors_of(launch), offsets_of(launch)
    stores = launch.kernel.stores
    reads = [node for node in nodes(*(store.expr for store in stores)) if isinstance(node, Load)]
    found = {(each.buffer, each.index) for each in (stores if is_stored else reads) if names[each.buffer] == name}
    if len(found) != 1:
        return None
    ((buffer, index),) = found
    loops = [(coefficient(index, loop.var), loop.extent, loop.var) for loop in launch.kernel.loops]
    known = tuple((a.value, b.value, var) for a, b, var in loops if isinstance(a, Int) and isinstance(b, Int))
    linear = total([Symbol(var) * step for step, _, var in known])
    if len(known) != len(loops) or index - linear is not ZERO or offsets[buffer]:
        return None
    below = 1
    for step, extent, _ in sorted(known):
        if step != below:
            return None
        below *= extent
    return Walk(known) if below == count else None


@dataclass(frozen=True, slots=True)
class Operand:
    """A tensor as a product reads it: the value that holds its elements, and where they lie in that."""

    root: str
    shape: tuple[Index, ...]
    stride: tuple[Index, ...]
    offset: Index
    dtype: torch.dtype

    def at(self, *place: Index) -> Index:
        """Where an element lies. A tensor of fewer dimensions is the same along those before, and one of a single
        element along its own."""
        pairs = zip(self.shape[::-1], self.stride[::-1], place[::-1], strict=False)
        return self.offset + total([index * stride for extent, stride, index in pairs if extent is not ONE])


@dataclass(frozen=True, slots=True)
class Parts:
    """A product and what becomes part of its kernel: the kernels that compute operands, by these, and the one that is
    computed of the result. `is_stored`: the product itself is wanted as well."""

    product: CallAten
    operands: tuple[Operand, ...]
    prologues: Mapping[str, Launch]
    epilogue: Launch | None
    is_stored: bool


class Writer:
    """Writes the kernel of a product. With `keep_rounding` the product is rounded to its dtype before anything is
    computed of it, as eager does."""

    def __init__(self, parts: Parts, tensors: Mapping[str, Tensor], keep_rounding: bool) -> None:
        self.parts, self.tensors, self.keep_rounding = parts, tensors, keep_rounding
        self.result = tensors[parts.product.name]
        left = parts.operands[-2]
        self.batches = self.result.shape[:-2]
        rows, columns = self.result.shape[-2:]
        pairs = [(ROW, rows), (COLUMN, columns), (TERM, left.shape[-1]), *((BATCH, size) for size in self.batches)]
        self.ranges = {symbol.name: extent for symbol, extent in pairs}

    def bound(self) -> Bound:
        """The kernel and its tensors; it has no name and no tiles."""
        parts = self.parts
        names = [symbol.name for symbol in ((BATCH,) * len(self.batches) + (ROW, COLUMN))]
        loops = tuple(Loop(name, self.ranges[name]) for name in names)
        whole = self._product()
        rounded = convert(whole, self.result.dtype)
        place = total([symbol * stride for symbol, stride in zip(map(Symbol, names), self._strides(), strict=True)])
        stores = [Store(parts.product.name, place, rounded, "write")] if parts.is_stored else []
        origins = [origin for launch in parts.prologues.values() for origin in launch.origins]
        origins.append(parts.product.name)
        if parts.epilogue is not None:
            stores += self._epilogue(parts.epilogue, place, whole, rounded)
            origins += parts.epilogue.origins
        return canonical(loops, stores, self.tensors, tuple(dict.fromkeys(origins)))

    def _strides(self) -> tuple[Index, ...]:
        """The steps of a result that lies row by row."""
        extents = numbers(self.result.shape)
        return tuple(Int(math.prod(extents[dim + 1 :])) for dim in range(len(extents)))

    def _product(self) -> Expr:
        """The sum in float32, with what is added to it."""
        *added, left, right = self.parts.operands
        batch = (BATCH,) * len(self.batches)
        terms = call("mul", self._factor(left, *batch, ROW, TERM), self._factor(right, *batch, TERM, COLUMN))
        value: Expr = Reduce("sum", (Loop(TERM.name, self.ranges[TERM.name]),), terms, torch.float32)
        alpha, beta = (self.parts.product.kwargs.get(name, 1) for name in ("alpha", "beta"))
        if added:
            value = _scaled(value, alpha)
            if beta != 0:
                other = Load(added[0].root, added[0].at(*batch, ROW, COLUMN), added[0].dtype)
                value = call("add", value, _scaled(convert(other, torch.float32), beta))
        return value

    def _factor(self, operand: Operand, *at: Index) -> Expr:
        """An element of an operand in float32, read, or computed as its prologue does."""
        place = operand.at(*at)
        launch = self.parts.prologues.get(operand.root)
        if launch is None:
            return convert(Load(operand.root, place, operand.dtype), torch.float32)
        walk = walk_of(launch, operand.root, math.prod(numbers(self.tensors[operand.root].shape)), is_stored=True)
        assert walk is not None
        (store,) = launch.kernel.stores
        return convert(_Moved(launch, walk.at(place, self.ranges), self.ranges)(store.expr), torch.float32)

    def _epilogue(self, launch: Launch, place: Index, whole: Expr, rounded: Expr) -> list[Store]:
        name = self.parts.product.name
        walk = walk_of(launch, name, math.prod(numbers(self.result.shape)))
        assert walk is not None
        loops = walk.at(place, self.ranges)
        keeps = self.keep_rounding or _is_decided_by(launch, name)
        moved = _Moved(launch, loops, self.ranges, (name, rounded, None if keeps else whole))
        names, offsets = tensors_of(launch), offsets_of(launch)
        return [
            Store(names[s.buffer], substitute(s.index, loops, self.ranges) + offsets[s.buffer], moved(s.expr), "write")
            for s in launch.kernel.stores
        ]


class _Moved:
    """Expressions of a kernel by the loops of another, and by the names of its tensors. `product` is a tensor that is
    not read: the value it would hold, and the one in float32 that this is made of, where that may take its place."""

    def __init__(
        self,
        launch: Launch,
        loops: Mapping[str, Index],
        ranges: Ranges,
        product: tuple[str, Expr, Expr | None] | None = None,
    ) -> None:
        self.names, self.offsets = tensors_of(launch), offsets_of(launch)
        self.loops, self.ranges, self.product = loops, ranges, product
        self.memo: dict[Expr, Expr] = {}

    def __call__(self, expr: Expr) -> Expr:
        made = self.memo.get(expr)
        if made is None:
            made = self.memo[expr] = self._moved(expr)
        return made

    def _moved(self, expr: Expr) -> Expr:
        if isinstance(expr, Load):
            if self.product is not None and self._reads(expr, self.product[0]):
                return self.product[1]
            index = substitute(expr.index, self.loops, self.ranges) + self.offsets[expr.buffer]
            return Load(self.names[expr.buffer], index, expr.dtype)
        if isinstance(expr, AsValue):
            return map_indices(expr, lambda index: substitute(index, self.loops, self.ranges))
        if self.product is not None and isinstance(expr, Cast) and expr.dtype is torch.float32:
            buffer, _, whole = self.product
            if whole is not None and self._reads(expr.expr, buffer):
                return whole
        return map_children(expr, self)

    def _reads(self, expr: Expr, buffer: str) -> bool:
        return isinstance(expr, Load) and self.names[expr.buffer] == buffer


def _is_decided_by(launch: Launch, name: str) -> bool:
    """Whether the last bit of a tensor's elements decides what a kernel gives, as it does of comparisons."""
    names = tensors_of(launch)
    found = nodes(*(store.expr for store in launch.kernel.stores))
    deciding = [node for node in found if isinstance(node, Call) and node.op in ROUNDED_FIRST]
    return any(isinstance(node, Load) and names[node.buffer] == name for node in nodes(*deciding))


def _scaled(value: Expr, factor: float) -> Expr:
    return value if factor == 1 else call("mul", value, constant(factor, torch.float32))
