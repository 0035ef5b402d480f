"""A launch that sums a tensor and the next one, which reads it again beside the sums, become one, on a GPU.

    sums[c] = sum over r of x[r, c]; y[r, c] = f(x[r, c], sums[c])    ->    both stages of one kernel

A batch norm is these two. As one launch (`codegen/triton.py`, `Change.is_held`) each of its instances keeps its part of
`x` in registers while the sums are made of all parts, so that `x` is read from memory once. What fits into the cache is
read from there the second time, and stays two launches.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import replace

from compiler.ir.apart import with_buffers
from compiler.ir.index import Index, Int, Symbol, evaluate, substitute, symbols
from compiler.ir.loops import Allocate, Bind, Check, Expr, Free, Kernel, Launch, Load, Loop, Reduce, Scan, Step, Store
from compiler.ir.rewrite import is_scattered, map_children, map_indices, nodes

DEVICE = "cuda"
LEAST_BYTES = 1 << 25
"""Of what both read. The cache of an H100 has 50 MB, half of them near each processor."""


def read_once(steps: Sequence[Step]) -> tuple[Step, ...]:
    """The steps, of which two launches are one where the second reads again what the first sums. What is allocated in
    between is allocated before, and what is dropped there after. Cost: linear in steps."""
    made: list[Step] = []
    kernels: dict[Hashable, Kernel | None] = {}
    at = 0
    while at < len(steps):
        step, end = steps[at], at + 1
        while end < len(steps) and isinstance(steps[end], Allocate | Free):
            end += 1
        other = steps[end] if end < len(steps) else None
        both = _joined(step, other, kernels) if isinstance(step, Launch) and isinstance(other, Launch) else None
        if both is None:
            made.append(step)
            at += 1
            continue
        between = steps[at + 1 : end]
        made += [each for each in between if isinstance(each, Allocate)]
        made.append(both)
        made += [each for each in between if isinstance(each, Free)]
        at = end + 1
    return tuple(made)


def _joined(first: Launch, second: Launch, kernels: dict[Hashable, Kernel | None]) -> Launch | None:
    """Both as one launch, of the same kernel for all that do the same; None where they are not such two."""
    tensors = [*_tensors(first), *_tensors(second)]
    if len(set(tensors)) != len({name for name, _ in tensors}):
        return None  # one tensor from two places on: buffers that overlap
    names = {tensor: f"b{number}" for number, tensor in enumerate(dict.fromkeys(tensors))}
    own = [names[tensor] for tensor in tensors]
    key = id(first.kernel), id(second.kernel), *own
    if key not in kernels:
        count = len(first.arguments)
        kernel = _both(_renamed(first.kernel, own[:count]), _renamed(second.kernel, own[count:]))
        kernels[key] = kernel and replace(kernel, name=f"{kernel.name}_{len(kernels)}")
    kernel = kernels[key]
    if kernel is None:
        return None
    offsets = tuple(offset for _, offset in names)
    origins = tuple(dict.fromkeys((*first.origins, *second.origins)))
    return Launch(kernel, tuple(name for name, _ in names), (), origins, offsets if any(offsets) else ())


def _both(sums: Kernel, elements: Kernel) -> Kernel | None:
    """One kernel of two stages; None where they are not such two."""
    if not _is_of_sums(sums) or not _is_of_elements(elements):
        return None
    buffers = {buffer.name: buffer for buffer in (*sums.buffers, *elements.buffers)}
    if any(buffers[buffer.name] != buffer for buffer in sums.buffers) or not _fits(sums, elements):
        return None
    before = _over_loops_of(sums, elements)
    if before is None or not _reads_own_rows(elements, before):
        return None
    origins = tuple(dict.fromkeys((*sums.origins, *elements.origins)))
    return replace(elements, name="both", before=before, buffers=tuple(buffers.values()), origins=origins)


def _tensors(launch: Launch) -> list[tuple[str, int]]:
    """What each buffer of a launch is of: a tensor, from an element on."""
    return list(zip(launch.arguments, launch.offsets or (0,) * len(launch.arguments), strict=True))


def _renamed(kernel: Kernel, names: Sequence[str]) -> Kernel:
    return with_buffers(kernel, {buffer.name: name for buffer, name in zip(kernel.buffers, names, strict=True)})


def _is_plain(kernel: Kernel) -> bool:
    is_simple = not (kernel.symbols or kernel.before or kernel.tiles or any(map(is_scattered, kernel.stores)))
    return kernel.device.type == DEVICE and is_simple and all(store.mode == "write" for store in kernel.stores)


def _is_of_sums(kernel: Kernel) -> bool:
    found = _found(kernel)
    return _is_plain(kernel) and any(isinstance(e, Reduce) for e in found) and not _has(found, Scan | Bind | Check)


def _is_of_elements(kernel: Kernel) -> bool:
    return _is_plain(kernel) and not _has(_found(kernel), Reduce | Scan | Bind | Check)


def _found(kernel: Kernel) -> list[Expr]:
    return nodes(*(store.expr for store in kernel.stores))


def _has(found: Sequence[Expr], kinds: object) -> bool:
    return any(isinstance(e, kinds) for e in found)  # type: ignore[arg-type]


def _fits(sums: Kernel, elements: Kernel) -> bool:
    """Whether the second kernel reads what the first stores, and writes nothing that it reads."""
    stored, own = ({store.buffer for store in kernel.stores} for kernel in (sums, elements))
    return bool(stored & _buffers(elements)) and not own & (_buffers(sums) | stored)


def _reads_own_rows(elements: Kernel, before: Sequence[Store]) -> bool:
    """Whether of what is made before each element reads its own row's, which is all that its instances wait for."""
    places = {store.buffer: store.index for store in before}
    loads = [e for e in _found(elements) if isinstance(e, Load) and e.buffer in places]
    return all(load.index - places[load.buffer] == Int(0) for load in loads)


def _buffers(kernel: Kernel) -> set[str]:
    return {e.buffer for e in _found(kernel) if isinstance(e, Load)}


def _over_loops_of(sums: Kernel, elements: Kernel) -> tuple[Store, ...] | None:
    """The stores of the sums over the loops of the elements; None where no large buffer is read alike by both, element
    by element."""
    sizes = {b.name: b.numel.value * b.dtype.itemsize for b in sums.buffers if isinstance(b.numel, Int)}
    large = {name for name, size in sizes.items() if size >= LEAST_BYTES}
    reductions = [e for e in _found(sums) if isinstance(e, Reduce)]
    again = {e.buffer: e.index for e in _found(elements) if isinstance(e, Load) and e.buffer in large}
    for reduction in reductions:
        loops = (*sums.loops, *reduction.loops)
        for load in (e for e in nodes(reduction.body) if isinstance(e, Load) and e.buffer in again):
            names = _same(load.index, loops, again[load.buffer], elements.loops)
            if names is not None and {names[loop.var].var for loop in sums.loops} != {v.var for v in elements.loops}:
                return _moved(sums, {loop.var: names[loop.var].var for loop in sums.loops})
    return None


def _same(index: Index, loops: Sequence[Loop], other: Index, others: Sequence[Loop]) -> dict[str, Loop] | None:
    """For each loop that of the others which goes over the same places; None where the places are not the same."""
    places, wanted = _places(index, loops), _places(other, others)
    if places is None or wanted is None or places[0] != wanted[0] or len(loops) != len(others):
        return None
    there = {(step, loop.extent): loop for step, loop in zip(wanted[1], others, strict=True)}
    found = {
        v.var: there[step, v.extent] for step, v in zip(places[1], loops, strict=True) if (step, v.extent) in there
    }
    is_one_to_one = len(there) == len(found) == len(loops) == len({loop.var for loop in found.values()})
    return found if is_one_to_one and 0 not in wanted[1] else None


def _places(index: Index, loops: Sequence[Loop]) -> tuple[int, list[int]] | None:
    """Where an index begins and how far each loop takes it; None where that varies."""
    zeros = {loop.var: 0 for loop in loops}
    if not symbols(index) <= zeros.keys():
        return None
    start = evaluate(index, zeros)
    steps = [evaluate(index, {**zeros, loop.var: 1}) - start for loop in loops]
    linear: Index = Int(start)
    for step, loop in zip(steps, loops, strict=True):
        linear = linear + Int(step) * Symbol(loop.var)
    return (start, steps) if linear - index == Int(0) else None


def _moved(kernel: Kernel, names: dict[str, str]) -> tuple[Store, ...]:
    """The stores with the kernel's loops under other names, and its reductions' loops under names that no other has."""
    names = names | {v.var: f"{v.var}_" for e in _found(kernel) if isinstance(e, Reduce) for v in e.loops}
    values: dict[str, Index] = {old: Symbol(new) for old, new in names.items()}
    memo: dict[Expr, Expr] = {}

    def moved(expr: Expr) -> Expr:
        if expr not in memo:
            memo[expr] = made(expr)
        return memo[expr]

    def made(expr: Expr) -> Expr:
        if isinstance(expr, Reduce):
            loops = tuple(replace(loop, var=names[loop.var]) for loop in expr.loops)
            return Reduce(expr.op, loops, moved(expr.body), expr.dtype)
        at = map_indices(expr, lambda index: substitute(index, values, {}))
        return map_children(at, moved)

    return tuple(replace(s, index=substitute(s.index, values, {}), expr=moved(s.expr)) for s in kernel.stores)
