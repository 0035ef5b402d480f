"""`product_program`: a product of matrices, with what is computed of it and of its operands, as one Triton program.

    for m, n:  y[m, n] = g(sum_k f(m, k) * h(k, n), m, n)

An instance has a tile of the result in registers, in float32. It walks along `k`, a step at a time: the operands'
tiles are read, or computed from what is read (the prologue), and multiplied by the tensor cores. Then all stores are
computed of the whole sums (the epilogue). Instances come in groups of a few rows of tiles by all columns. So instances
that run at a time read the same rows and columns, which the cache holds. There are masks where sizes are no multiples
of the tiles.
"""

from __future__ import annotations

import keyword
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

import torch

from assay.compiler.codegen.loops.identifiers import with_identifiers
from assay.compiler.codegen.loops.operators import HALVES
from assay.compiler.codegen.triton import expressions as triton_expr
from assay.compiler.codegen.triton import indices as triton_index
from assay.compiler.codegen.triton.tiles import Program, parenthesized
from assay.compiler.errors import Unexpected
from assay.compiler.ir.loops.index import Index, Int, coefficient
from assay.compiler.ir.loops.kernel import AsValue, Call, Cast, Const, Expr, Kernel, Load, Loop, Reduce, Tiles
from assay.compiler.ir.loops.rewrite import free_variables, nodes

GROUP = 8
"""Rows of tiles whose instances come together."""
_OWN = re.compile(
    r"[vp]\d+|pid|batch|first|size|down|across|steps|total|begin|(left|right)_k|(in_)?(rows|columns)|in_(left|right)"
    r"|m|d|tl|triton|range"
)


@dataclass(frozen=True, slots=True)
class Product:
    """What a kernel computes: the one sum in it, its operands as they are multiplied, and its loops."""

    total: Reduce
    left: Expr
    right: Expr
    batch: Loop | None
    rows: Loop
    columns: Loop
    depth: Loop


def product_in(kernel: Kernel) -> Product | None:
    """The product of matrices of half precision that a kernel computes; None where it is something else."""
    if kernel.symbols or len(kernel.loops) not in (2, 3):
        return None
    *batches, rows, columns = kernel.loops
    sums = [node for node in nodes(*(store.expr for store in kernel.stores)) if isinstance(node, Reduce)]
    match sums:
        case [Reduce("sum", (depth,), Call("mul", (Cast(left), Cast(right))), torch.float32) as total]:
            pass
        case _:
            return None
    if left.dtype is not right.dtype or left.dtype not in HALVES:
        return None
    if rows.var in free_variables(right, {}) or columns.var in free_variables(left, {}):
        left, right = right, left
    if rows.var in free_variables(right, {}) or columns.var in free_variables(left, {}):
        return None
    return Product(total, left, right, batches[0] if batches else None, rows, columns, depth)


def product_program(kernel: Kernel, tiles: Tiles, is_wide: bool = False) -> Program:
    """The program of a product. With `is_wide` indices have 64 bits.

    Raises: Unexpected for a kernel that is no product, or an operator that Triton has no text for.
    """
    renamed = with_identifiers(kernel, _identifier)
    product = product_in(renamed)
    if product is None:
        raise Unexpected(f"assay: kernel {kernel.name} has tiles of a product, and is none of halves of known sizes")
    return _Emitter(renamed, product, tiles, is_wide).run()


def _identifier(name: str) -> str:
    plain = re.sub(r"\W", "_", name)
    return f"{plain}_" if keyword.iskeyword(plain) or _OWN.fullmatch(plain) or plain[:1].isdigit() else plain


@dataclass(slots=True)
class _Scope:
    """Where values are computed: lines being written, by which names variables and their masks go there, and the shape
    of a tile over all of them. What the innermost scope's own variable has no part in is computed around it."""

    indent: int
    variables: Mapping[str, str]
    masks: Mapping[str, str]
    shape: tuple[int, int]
    own: str = ""
    around: _Scope | None = None
    lines: list[str] = field(default_factory=list)
    names: dict[Expr, str] = field(default_factory=dict)

    def line(self, text: str) -> None:
        self.lines.append("    " * self.indent + text)


class _Emitter:
    def __init__(self, kernel: Kernel, product: Product, tiles: Tiles, is_wide: bool) -> None:
        self.kernel, self.product, self.tiles, self.is_wide = kernel, product, tiles, is_wide
        self.dtypes = {buffer.name: buffer.dtype for buffer in kernel.buffers}
        self.is_narrow = all(self.dtypes[store.buffer] in HALVES for store in kernel.stores)
        loops = (*kernel.loops, product.depth)
        self.extents = {loop.var: loop.extent for loop in loops}
        self.sizes = {loop.var: _number(loop.extent) for loop in loops}
        self.free: dict[Expr, frozenset[str]] = {}
        self.count = 0

    def run(self) -> Program:
        product, tiles = self.product, self.tiles
        head = _Scope(1, {}, {}, (1, 1))
        grid = self._begin(head)
        names = {product.rows.var: "rows", product.columns.var: "columns"}
        names |= {product.batch.var: "batch"} if product.batch is not None else {}
        masks = {var: f"in_{name}" for var, name in names.items() if self._is_masked(var)}
        head.line(f"total = tl.full([{tiles.rows}, {tiles.columns}], 0, tl.float32)")
        if self.sizes[product.depth.var]:
            self._sum(head, names, masks)
        whole = _Scope(1, names, masks, (tiles.rows, tiles.columns), names={product.total: "total"})
        self._store(whole)
        return Program(self.kernel.name, self._text(head, whole), Int(grid), tiles.warps, False, stages=tiles.stages)

    def _text(self, *scopes: _Scope) -> str:
        origins = [f"    # {origin}" for origin in self.kernel.origins]
        arguments = ", ".join(buffer.name for buffer in self.kernel.buffers)
        lines = [line for scope in scopes for line in scope.lines]
        return "\n".join(["@triton.jit", f"def {self.kernel.name}({arguments}):", *origins, *lines, ""])

    # ---- tiles

    def _is_masked(self, var: str) -> bool:
        widths = {self.product.rows.var: self.tiles.rows, self.product.columns.var: self.tiles.columns}
        widths[self.product.depth.var] = self.tiles.depth
        return var in widths and self.sizes[var] % widths[var] != 0

    def _begin(self, head: _Scope) -> int:
        """The lines that say which tile an instance has; how many instances there are."""
        product, tiles = self.product, self.tiles
        down, across = (
            -(-self.sizes[loop.var] // width)
            for loop, width in ((product.rows, tiles.rows), (product.columns, tiles.columns))
        )
        wide = ".to(tl.int64)" if self.is_wide else ""
        head.line(f"pid = tl.program_id(0){wide}")
        if product.batch is not None:
            head.line(f"batch = pid // {max(1, down * across)}")
            head.line(f"pid = pid % {max(1, down * across)}")
        head.line(f"first = pid // {max(1, GROUP * across)} * {GROUP}")
        head.line(f"size = tl.minimum({down} - first, {GROUP})")
        head.line(f"down = first + pid % {max(1, GROUP * across)} % size")
        head.line(f"across = pid % {max(1, GROUP * across)} // size")
        for name, tile, width, along, loop in (
            ("rows", "down", tiles.rows, "[:, None]", product.rows),
            ("columns", "across", tiles.columns, "[None, :]", product.columns),
        ):
            head.line(f"{name} = ({tile} * {width} + tl.arange(0, {width})){along}")
            if self._is_masked(loop.var):
                head.line(f"in_{name} = {name} < {self.sizes[loop.var]}")
        batches = self.sizes[product.batch.var] if product.batch is not None else 1
        return batches * down * across

    # ---- the sum

    def _sum(self, head: _Scope, names: Mapping[str, str], masks: Mapping[str, str]) -> None:
        product, tiles = self.product, self.tiles
        depth = product.depth.var
        head.line(f"steps = tl.arange(0, {tiles.depth}){'.to(tl.int64)' if self.is_wide else ''}")
        body: list[str] = []
        values = []
        for side, expr, other, along, shape in (
            ("left", product.left, product.rows.var, "[None, :]", (tiles.rows, tiles.depth)),
            ("right", product.right, product.columns.var, "[:, None]", (tiles.depth, tiles.columns)),
        ):
            head.line(f"{side}_k = steps{along}")
            outer = _Scope(1, {**names, depth: f"{side}_k"}, masks, shape, lines=head.lines)
            inside = {**masks, depth: f"in_{side}"} if self._is_masked(depth) else masks
            inner = _Scope(2, {**names, depth: f"(begin + {side}_k)"}, inside, shape, depth, outer, body)
            if depth in inside:
                inner.line(f"in_{side} = {side}_k < {self.sizes[depth]} - begin")
            values.append(self._operand(expr, inner, frozenset((depth, other))))
        head.line(f"for begin in range(0, {self.sizes[depth]}, {tiles.depth}):")
        head.lines += [*body, f"        total = tl.dot({values[0]}, {values[1]}, total)"]

    def _operand(self, expr: Expr, scope: _Scope, axes: frozenset[str]) -> str:
        """An operand's tile, in which nothing is where there are no terms."""
        value = self._value(expr, scope)
        mask = scope.masks.get(scope.own)
        if mask is not None and not (isinstance(expr, Load) and scope.own in self._free(expr)):
            value = self._new(scope, f"tl.where({mask}, {value}, 0.0).to({triton_expr.TYPES[expr.dtype]})")
        if not axes <= self._free(expr):
            value = self._new(scope, f"tl.broadcast_to({value}, {list(scope.shape)})")
        return value

    # ---- stores

    def _store(self, scope: _Scope) -> None:
        """All values, and then the stores: what is read may be what is written, of the same element."""
        axes = {self.product.rows.var, self.product.columns.var}
        made = [(store, self._value(store.expr, scope)) for store in self.kernel.stores]
        for store, value in made:
            dtype = self.dtypes[store.buffer]
            if store.mode != "write":
                raise Unexpected(f"assay: Triton has no {store.mode} beside a product; it must be left to a kernel")
            pointer = f"{store.buffer} + {parenthesized(self._index(store.index, scope))}"
            value = f"{value}.to(tl.uint8)" if dtype is torch.bool else value
            if not axes <= self._names(store.index) & self._free(store.expr):
                shape = list(scope.shape)
                pointer, value = f"tl.broadcast_to({pointer}, {shape})", f"tl.broadcast_to({value}, {shape})"
            mask = self._mask(frozenset(axes), scope)
            scope.line(f"tl.store({pointer}, {value}{f', mask={mask}' if mask else ''})")

    # ---- values

    def _free(self, expr: Expr) -> frozenset[str]:
        return free_variables(expr, self.free)

    def _names(self, index: Index) -> frozenset[str]:
        return self._free(AsValue(index, torch.int64))

    def _value(self, expr: Expr, scope: _Scope) -> str:
        if scope.around is not None and scope.own not in self._free(expr):
            scope = scope.around
        if expr not in scope.names:
            scope.names[expr] = self._made(expr, scope)
        return scope.names[expr]

    def _made(self, expr: Expr, scope: _Scope) -> str:
        match expr:
            case Load():
                return self._new(scope, self._load(expr, scope))
            case Const(value, dtype):
                return self._new(scope, triton_expr.constant(value, dtype))
            case Call("philox", (seed, start, AsValue(position), Const(threads), Const(width))):
                whole = f"tl.broadcast_to({self._index(position, scope)}, {list(scope.shape)})"
                of = f"{self._value(seed, scope)}, {self._value(start, scope)}"
                return self._new(scope, f"m.philox({of}, {whole}, {threads}, {width})")
            case Call():
                operands = [self._value(arg, scope) for arg in expr.args]
                return self._new(scope, triton_expr.call(expr, operands, self.is_narrow))
            case Cast(inner, dtype):
                return self._new(scope, triton_expr.cast(self._value(inner, scope), inner.dtype, dtype))
            case AsValue(index, dtype):
                text = self._index(index, scope)
                whole = parenthesized(text) if self._names(index) else f"tl.full((), {text}, tl.int64)"
                return self._new(scope, f"{whole}.to({triton_expr.TYPES[dtype]})")
        raise Unexpected(f"assay: a product has no {type(expr).__name__} beside it; it must be left to a kernel")

    def _new(self, scope: _Scope, text: str) -> str:
        name = f"v{self.count}"
        self.count += 1
        scope.line(f"{name} = {text}")
        return name

    def _load(self, expr: Load, scope: _Scope) -> str:
        mask = self._mask(self._names(expr.index), scope)
        place = parenthesized(self._place(expr.index, scope))
        text = f"tl.load({expr.buffer} + {place}{f', mask={mask}, other=0' if mask else ''})"
        return f"{text} != 0" if self.dtypes[expr.buffer] is torch.bool else text

    def _place(self, index: Index, scope: _Scope) -> str:
        """An index in a loop: what it is where the loop begins, computed before it, and how far it is from there."""
        step = coefficient(index, scope.own) if scope.around is not None and not self.is_wide else None
        if not isinstance(step, Int) or scope.around is None:
            return self._index(index, scope)
        start = f"p{self.count}"
        self.count += 1
        scope.around.line(f"{start} = {self._index(index, scope.around)}")
        return f"{start} + begin{f' * {step.value}' if step.value != 1 else ''}"

    def _index(self, index: Index, scope: _Scope) -> str:
        return triton_index.text_of(index, lambda name: scope.variables[name], self.extents)

    def _mask(self, names: frozenset[str], scope: _Scope) -> str:
        return " & ".join(mask for var, mask in scope.masks.items() if var in names)


def _number(extent: Index) -> int:
    if not isinstance(extent, Int):
        raise Unexpected(f"assay: a product by tiles has known sizes, and {extent} is none")
    return extent.value
