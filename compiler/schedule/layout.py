"""From a group to its kernel: elements become loads at flat offsets, loops are merged and names made canonical.

Two groups that do the same with other tensors give the same kernel, so that a network's equal layers share code.
"""

from __future__ import annotations

import dataclasses
from collections import ChainMap
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from assay.compiler.errors import VerifyError
from assay.compiler.ir.loops.index import (
    ONE,
    ZERO,
    Index,
    Int,
    Symbol,
    bounds,
    coefficient,
    simplify,
    substitute,
    symbols,
    total,
)
from assay.compiler.ir.loops.kernel import AsValue, Bind, Buffer, Element, Expr, Kernel, Load, Loop, Reduce, Scan, Store
from assay.compiler.ir.loops.lowered import Tensor
from assay.compiler.ir.loops.rewrite import (
    Substitution,
    call,
    children,
    constant,
    convert,
    indices,
    loops_bound_by,
    map_children,
    map_indices,
    nodes,
    renamed_at_root,
    without_detour,
)
from assay.compiler.schedule.fuse import LANE, Fused, Group, Scattering, place_of


@dataclass(frozen=True, slots=True)
class Bound:
    """A kernel and the tensors and sizes that one launch gives it. `writes` are those among the tensors it stores;
    `offsets` how many elements behind the first of each tensor the kernel's buffer begins."""

    kernel: Kernel
    arguments: tuple[str, ...]
    writes: tuple[str, ...]
    origins: tuple[str, ...]
    offsets: tuple[int, ...]


def offset_of(tensor: Tensor, at: tuple[Index, ...]) -> Index:
    """The flat offset of an element from the tensor's first; of a complex tensor it is counted in real numbers."""
    if tensor.dtype.is_complex:
        return total([*(index * stride * 2 for index, stride in zip(at[:-1], tensor.stride, strict=True)), at[-1]])
    return total([index * stride for index, stride in zip(at, tensor.stride, strict=True)])


def span_of(tensor: Tensor) -> Index:
    """The number of elements from the first to the last in memory; of a complex tensor, that of real numbers."""
    if any(extent is ZERO for extent in tensor.shape):
        return ZERO
    last = total([(extent - 1) * stride for extent, stride in zip(tensor.shape, tensor.stride, strict=True)])
    return (last + 1) * 2 if tensor.dtype.is_complex else last + 1


def lay_out(group: Group, fused: Fused, origins: dict[str, str]) -> Bound:
    """The kernel of a group, not yet named."""
    loops, stores = _laid_out(group, fused)
    return canonical(loops, stores, fused.lowered.tensors, tuple(origins[name] for name in group.expansions))


def lay_out_both(rows: Group, columns: Group, fused: Fused, origins: dict[str, str]) -> Bound:
    """The kernel of two groups, not yet named: one over rows and columns, and one over the columns alone."""
    loops, stores = _laid_out(rows, fused)
    (column,), others = _laid_out(columns, fused)
    values: dict[str, Index] = {column.var: Symbol(loops[1].var)}
    own = Substitution(values, {loop.var: loop.extent for loop in loops})
    stores += [dataclasses.replace(s, index=substitute(s.index, values), expr=own(s.expr)) for s in others]
    names = (*rows.expansions, *columns.expansions)
    return canonical(loops, stores, fused.lowered.tensors, tuple(origins[name] for name in names))


def _laid_out(group: Group, fused: Fused) -> tuple[tuple[Loop, ...], list[Store]]:
    """The loops of a group and its stores, by the names of their tensors."""
    tensors = fused.lowered.tensors
    stores: list[Store] = []
    loops = tuple(Loop(f"i{k}", extent) for k, extent in enumerate(group.domain))
    never = next((Symbol(loop.var) for loop in loops if loop.extent is ZERO), None)
    for name, expr in group.expansions.items():
        at = place_of(tensors[name], fused.axes[name], group.domain)
        found = list(_stores(tensors[name], at, expr, group.ranges))
        if never is not None and ZERO in tensors[name].shape:  # strides of 0 may leave the loop out that never runs
            found = [dataclasses.replace(found[0], index=never, expr=constant(0, found[0].expr.dtype))]
        stores += found
    flat = _map_exprs(stores, _Flatten(tensors, loops))
    return _merge_loops(_used_loops(loops, flat), flat)


def _stores(tensor: Tensor, at: tuple[Index, ...], expr: Expr, ranges: dict[str, Index]) -> Iterator[Store]:
    """The store of a value, or those of its lanes."""
    if not tensor.dtype.is_complex:
        yield Store(tensor.name, offset_of(tensor, at), without_detour(expr), "write")
        return
    for lane in (ZERO, ONE):
        value = Substitution({LANE.name: lane}, ranges)(expr)
        yield Store(tensor.name, offset_of(tensor, (*at, lane)), value, "write")


def lay_out_scattering(scattering: Scattering, fused: Fused) -> Bound:
    """The kernel of updates, not yet named. No loop is left out or moved: each runs as often as it says, in order."""
    tensors, definition = fused.lowered.tensors, scattering.definition
    loops = tuple(Loop(f"i{k}", extent) for k, extent in enumerate(definition.over))
    values: dict[str, Index] = {f"d{k}": Symbol(loop.var) for k, loop in enumerate(loops)}
    update = Substitution(values, {loop.var: loop.extent for loop in loops})(scattering.update)
    place = substitute(offset_of(definition.tensor, definition.at), values)
    flat = _map_exprs([Store(definition.tensor.name, place, update, definition.mode)], _Flatten(tensors, loops))
    merged_loops, merged = _merge_loops(loops, flat)
    return canonical(merged_loops, merged, tensors, (definition.origin,))


def _map_exprs(stores: list[Store], function: Callable[[Expr], Expr]) -> list[Store]:
    return [dataclasses.replace(store, expr=function(store.expr)) for store in stores]


class _Rewriter:
    """A memoized bottom-up rewrite of leaves."""

    def __init__(self) -> None:
        self.memo: dict[Expr, Expr] = {}

    def __call__(self, expr: Expr) -> Expr:
        made = self.memo.get(expr)
        if made is None:
            made = self.memo[expr] = self.rewrite(expr)
        return made

    def rewrite(self, expr: Expr) -> Expr:
        raise NotImplementedError


class _Flatten(_Rewriter):
    """`tensor[at] -> buffer[offset]`, and loops of one iteration dropped from reductions."""

    def __init__(self, tensors: Mapping[str, Tensor], loops: tuple[Loop, ...]) -> None:
        super().__init__()
        self.tensors = tensors
        self.ranges: ChainMap[str, Index] = ChainMap({}, {loop.var: loop.extent for loop in loops})

    def rewrite(self, expr: Expr) -> Expr:
        self.ranges.maps[0].update({loop.var: loop.extent for loop in loops_bound_by(expr)})
        if isinstance(expr, Element):
            tensor = self.tensors[expr.tensor]
            return Load(expr.tensor, simplify(offset_of(tensor, expr.at), self.ranges), expr.dtype)
        if isinstance(expr, AsValue):
            return map_indices(expr, lambda index: simplify(index, self.ranges))
        return map_children(expr, self)


def _used_loops(loops: tuple[Loop, ...], stores: list[Store]) -> tuple[Loop, ...]:
    """The loops that some store mentions; the others would only repeat them."""
    mentioned = frozenset().union(*(symbols(store.index) for store in stores))
    return tuple(loop for loop in loops if loop.var in mentioned)


# ---- merging loops -------------------------------------------------------------------------------------------------


def _all_indices(stores: list[Store]) -> set[Index]:
    found = {store.index for store in stores}
    for node in nodes(*(store.expr for store in stores)):
        found.update(indices(node))
    return found


def _merge_loops(loops: tuple[Loop, ...], stores: list[Store]) -> tuple[tuple[Loop, ...], list[Store]]:
    """Makes one loop of two neighbours that every index walks as one, here and in reductions."""
    loops, stores = _merge_outer(loops, stores)
    found = _all_indices(stores)
    values: dict[str, Index] = {}
    merged: dict[tuple[Loop, ...], tuple[Loop, ...]] = {}
    for node in nodes(*(store.expr for store in stores)):
        if isinstance(node, Reduce) and node.loops not in merged:
            merged[node.loops] = _merge_run(node.loops, found, values)
    if not values and all(old == new for old, new in merged.items()):
        return loops, stores
    return loops, _map_exprs(stores, _Merge(values, merged))


def _merge_outer(loops: tuple[Loop, ...], stores: list[Store]) -> tuple[tuple[Loop, ...], list[Store]]:
    values: dict[str, Index] = {}
    merged = _merge_run(loops, _all_indices(stores), values)
    if not values:
        return merged, stores
    exprs = _map_exprs(stores, _Merge(values, {}))
    return merged, [dataclasses.replace(store, index=substitute(store.index, values)) for store in exprs]


def _merge_run(loops: tuple[Loop, ...], found: set[Index], values: dict[str, Index]) -> tuple[Loop, ...]:
    """The loops with neighbours merged; `values` says what becomes of the variables that go."""
    kept = [loop for loop in loops if loop.extent is not ONE]
    values.update({loop.var: ZERO for loop in loops if loop.extent is ONE})
    result: list[Loop] = []
    for loop in reversed(kept):
        if result and _walk_as_one(loop, result[0], found):
            inner = result.pop(0)
            values[loop.var] = ZERO
            loop = Loop(inner.var, loop.extent * inner.extent)
        result.insert(0, loop)
    return tuple(result)


def _walk_as_one(outer: Loop, inner: Loop, found: set[Index]) -> bool:
    """Whether each index has `outer*extent + inner` in it, and the two variables nowhere else."""
    for index in found:
        names = symbols(index)
        if outer.var not in names and inner.var not in names:
            continue
        a, b = coefficient(index, outer.var), coefficient(index, inner.var)
        if a is None or b is None or a is not b * inner.extent:
            return False
    return True


class _Merge(_Rewriter):
    """Replaces the variables of merged loops, and the loops of reductions."""

    def __init__(self, values: dict[str, Index], loops: dict[tuple[Loop, ...], tuple[Loop, ...]]) -> None:
        super().__init__()
        self.values, self.loops = values, loops

    def rewrite(self, expr: Expr) -> Expr:
        if isinstance(expr, Reduce):
            loops = self.loops.get(expr.loops, expr.loops)
            return Reduce(expr.op, loops, self(expr.body), expr.dtype) if loops else self.single(expr)
        if isinstance(expr, Load | AsValue):
            return map_indices(expr, lambda index: substitute(index, self.values))
        if isinstance(expr, Scan):
            return Scan(expr.op, expr.loop, substitute(expr.last, self.values), self(expr.body), expr.dtype)
        return map_children(expr, self)

    def single(self, expr: Reduce) -> Expr:
        """A reduction of one element: the element, or its position. A sum begins at 0, so that -0 becomes 0."""
        if expr.op.startswith("arg"):
            return constant(0, expr.dtype)
        element = convert(self(expr.body), expr.dtype)
        is_sum = expr.op == "sum" and expr.dtype.is_floating_point
        return call("add", element, constant(0.0, expr.dtype)) if is_sum else element


# ---- canonical names -------------------------------------------------------------------------------------------------


class _Rename(_Rewriter):
    """Names buffers in the order of their appearance and bound variables by the height of their reduction."""

    def __init__(self, values: dict[str, Index], buffers: dict[str, str], offsets: Mapping[str, int]) -> None:
        super().__init__()
        self.values, self.buffers, self.offsets = values, buffers, offsets
        self.heights: dict[Expr, int] = {}

    def height(self, expr: Expr) -> int:
        """How many reductions, bindings and scans are nested in an expression."""
        found = self.heights.get(expr)
        if found is None:
            inner = max((self.height(child) for child in children(expr)), default=0)
            found = self.heights[expr] = inner + isinstance(expr, Reduce | Bind | Scan)
        return found

    def index(self, index: Index) -> Index:
        return substitute(index, self.values)

    def binding(self, expr: Bind | Scan) -> Expr:
        """With the variable named by the height too; in the body alone, for its name may be bound elsewhere again."""
        name = f"b{self.height(expr) - 1}"
        inner = _Rename({**self.values, expr.loop.var: Symbol(name)}, self.buffers, self.offsets)
        loop, body = Loop(name, self.index(expr.loop.extent)), inner(expr.body)
        if isinstance(expr, Scan):
            return Scan(expr.op, loop, self.index(expr.last), body, expr.dtype)
        return Bind(loop, self(expr.position), body, expr.dtype)

    def rewrite(self, expr: Expr) -> Expr:
        if isinstance(expr, Bind | Scan):
            return self.binding(expr)
        if isinstance(expr, Reduce):
            level = self.height(expr) - 1
            for position, loop in enumerate(expr.loops):
                name = Symbol(f"r{level}_{position}")
                if self.values.setdefault(loop.var, name) is not name:
                    raise VerifyError(f"loop variable {loop.var} is bound at two heights")
            loops = tuple(Loop(f"r{level}_{p}", self.index(loop.extent)) for p, loop in enumerate(expr.loops))
            return Reduce(expr.op, loops, self(expr.body), expr.dtype)
        if isinstance(expr, Load):
            index = self.index(expr.index) - self.offsets.get(expr.buffer, 0)
            return Load(self.buffers[expr.buffer], index, expr.dtype)
        if isinstance(expr, AsValue):
            return map_indices(expr, self.index)
        return map_children(expr, self)


def canonical(
    loops: tuple[Loop, ...], stores: list[Store], tensors: Mapping[str, Tensor], origins: tuple[str, ...]
) -> Bound:
    """The kernel of stores by the names of their tensors, under names of its own."""
    writes = list(dict.fromkeys(store.buffer for store in stores))
    loads = [node for node in nodes(*(store.expr for store in stores)) if isinstance(node, Load)]
    reads = [name for name in dict.fromkeys(node.buffer for node in loads) if name not in writes]
    buffers = {name: f"in{k}" for k, name in enumerate(reads)} | {name: f"out{k}" for k, name in enumerate(writes)}
    windows = _windows(reads, loads, {loop.var: loop.extent for loop in (*loops, *_bound_loops(stores))}, tensors)
    values: dict[str, Index] = {loop.var: Symbol(f"i{k}") for k, loop in enumerate(loops)}
    rename = _Rename(values, buffers, {name: window.offset for name, window in windows.items()})
    renamed = tuple(_renamed(store, rename) for store in stores)
    declared = tuple(Buffer(buffers[name], tensors[name].dtype.to_real(), windows[name].numel) for name in reads)
    declared += tuple(Buffer(buffers[name], tensors[name].dtype.to_real(), span_of(tensors[name])) for name in writes)
    new_loops = tuple(Loop(f"i{k}", loop.extent) for k, loop in enumerate(loops))
    sizes = sorted(_sizes(new_loops, renamed, declared))
    kernel = Kernel("", new_loops, renamed, declared, tuple(sizes), origins, tensors[writes[0]].device)
    offsets = (*(windows[name].offset for name in reads), *(0 for _ in writes))
    return Bound(kernel, (*reads, *writes), tuple(writes), origins, offsets)


@dataclass(frozen=True, slots=True)
class _Window:
    """The part of a tensor that a kernel reads: `numel` elements from `offset` on."""

    offset: int
    numel: Index


def _windows(
    reads: list[str], loads: list[Load], ranges: Mapping[str, Index], tensors: Mapping[str, Tensor]
) -> dict[str, _Window]:
    """What a kernel reads of each tensor, so that kernels which differ only in where they begin to read are one.

    The same step on each part of a tensor (an unrolled recurrence, the heads of a split projection) is one kernel then.
    """
    found: dict[str, list[Index]] = {name: [] for name in reads}
    for load in loads:
        if load.buffer in found:
            found[load.buffer].append(load.index)
    return {name: _window(indices, ranges, span_of(tensors[name])) for name, indices in found.items()}


def _window(indices: list[Index], ranges: Mapping[str, Index], span: Index) -> _Window:
    pairs = [bounds(index, ranges) for index in indices]
    first, last = zip(*((low, high) for low, high in pairs), strict=True)
    lows = [low.value for low in first if isinstance(low, Int)]
    highs = [high.value for high in last if isinstance(high, Int)]
    if not isinstance(span, Int) or len(lows) < len(pairs) or len(highs) < len(pairs):
        return _Window(0, span)
    offset, end = min(lows), max(highs) + 1
    return _Window(offset, Int(end - offset)) if 0 <= offset < end <= span.value else _Window(0, span)


def _renamed(store: Store, rename: _Rename) -> Store:
    expr = rename(store.expr)
    index = substitute(store.index, {**rename.values, **renamed_at_root(store.expr, expr)})
    return Store(rename.buffers[store.buffer], index, expr, store.mode)


def _sizes(loops: tuple[Loop, ...], stores: tuple[Store, ...], buffers: tuple[Buffer, ...]) -> set[str]:
    """The names that the kernel does not bind: its symbolic sizes."""
    names = {name for index in _every_index(loops, stores, buffers) for name in symbols(index)}
    return names - {loop.var for loop in loops} - {loop.var for loop in _bound_loops(stores)}


def _every_index(loops: tuple[Loop, ...], stores: tuple[Store, ...], buffers: tuple[Buffer, ...]) -> Iterator[Index]:
    yield from (loop.extent for loop in loops)
    yield from (buffer.numel for buffer in buffers)
    yield from (loop.extent for loop in _bound_loops(stores))
    yield from _all_indices(list(stores))


def _bound_loops(stores: Sequence[Store]) -> Iterator[Loop]:
    for node in nodes(*(store.expr for store in stores)):
        yield from loops_bound_by(node)
