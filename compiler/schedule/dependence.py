"""The dependence relation inside a kernel: which elements of a buffer it reads and writes, and in what iteration.

In-place reuse is proven from it, never recognised by its look.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass

from assay.compiler.ir.loops.independent_stores import buffers_of, components
from assay.compiler.ir.loops.index import Index, Int, coefficient
from assay.compiler.ir.loops.kernel import Kernel, Load, Loop, Reduce
from assay.compiler.ir.loops.rewrite import nodes


@dataclass(frozen=True, slots=True)
class _Reads:
    """What a kernel reads of each buffer: at which indices, and whether in a reduction.

    In a reduction one iteration reads elements that others may write. For each set of stores that run in the same
    iterations it also says which buffers the set touches.
    """

    indices: Mapping[str, frozenset[Index]]
    reduced: frozenset[str]
    together: tuple[frozenset[str], ...]


@functools.lru_cache(maxsize=32)
def _reads_of(kernel: Kernel) -> _Reads:
    """Cost: one walk of the kernel; it is asked about each pair of buffers."""
    found = nodes(*(store.expr for store in kernel.stores))
    inside = nodes(*(node.body for node in found if isinstance(node, Reduce)))
    indices: dict[str, set[Index]] = {}
    for node in found:
        if isinstance(node, Load):
            indices.setdefault(node.buffer, set()).add(node.index)
    return _Reads(
        {name: frozenset(each) for name, each in indices.items()},
        frozenset(node.buffer for node in inside if isinstance(node, Load)),
        tuple(frozenset(buffers_of(stores)) for stores in components(kernel)),
    )


def is_injective(index: Index, loops: tuple[Loop, ...]) -> bool:
    """Whether each iteration has its own element: strides that, in order, exceed all that lies below them.

    Only for static sizes; anything else is not proven.
    """
    spans = []
    for loop in loops:
        step = coefficient(index, loop.var)
        if not isinstance(step, Int) or not isinstance(loop.extent, Int):
            return False
        spans.append((step.value, loop.extent.value))
    below = 0
    for stride, count in sorted(spans):
        if count > 1 and stride <= below:
            return False
        below += stride * max(count - 1, 0)
    return True


def may_overwrite(kernel: Kernel, read: str, written: str) -> bool:
    """Whether `written` may be the memory of `read`: each iteration reads of it only the element that it writes.

    That holds if one store writes it, with an element to each iteration of all loops, every read is at exactly its
    index, and none is inside a reduction. Then no order of iterations can matter. What else reads that element does so
    in the same iteration, which computes the values of all its stores before it makes one. Stores apart from it
    (`ir/loops/independent_stores.py`) need not run in its iterations, so none of them may read it.
    """
    stores = [store for store in kernel.stores if store.buffer == written]
    if len(stores) != 1 or (len(kernel.stores) > 1 and not _are_together(kernel, read, written)):
        return False
    (store,) = stores
    sizes = {buffer.name: buffer for buffer in kernel.buffers}
    if sizes[read].dtype is not sizes[written].dtype or sizes[read].numel is not sizes[written].numel:
        return False
    reads = _reads_of(kernel)
    if store.mode != "write" or read in reads.reduced:
        return False
    return reads.indices.get(read, frozenset()) <= {store.index} and is_injective(store.index, kernel.loops)


def _are_together(kernel: Kernel, read: str, written: str) -> bool:
    """Whether no store reads `read` but such as run in the iteration that writes `written`."""
    readers = [names for names in _reads_of(kernel).together if read in names]
    return len(readers) == 1 and written in readers[0]
