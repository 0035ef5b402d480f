"""Which stores go past the caches: Kernel -> the buffers whose lines of memory are written whole, without being read.

An ordinary store reads its line of memory before it changes it. That is a third of the traffic of a kernel that reads
as much as it writes. It is wasted where nothing that is written will still be in a cache when it is read. So a store
is made in a few lines of a local array, which `m::stream` brings to their place.

On two cores of an AMD EPYC, with a last cache of 32 MB, this scales 64 MB by two in 3.3 ms and not in 5.0. What a
cache holds takes up to three times as long so: 4 MB take 0.16 ms, and not 0.05.
"""

from __future__ import annotations

from assay.compiler.ir.loops.failures import failures_of
from assay.compiler.ir.loops.index import Int
from assay.compiler.ir.loops.kernel import Buffer, Kernel, Load
from assay.compiler.ir.loops.rewrite import is_scattered, nodes
from assay.compiler.machine import number

LINE = 64
"""Elements that are made before they are streamed: longer runs, as a whole page, took as long as ordinary stores."""


def streamed_buffers(kernel: Kernel) -> frozenset[str]:
    """The names of the buffers that one store writes past the caches: of known size, written once and not read."""
    sizes = {buffer.name: _bytes(buffer) for buffer in kernel.buffers}
    if not is_beyond_cache(kernel) or failures_of(kernel):
        return frozenset()
    loaded = {expr.buffer for expr in nodes(*(store.expr for store in kernel.stores)) if isinstance(expr, Load)}
    stored = [store.buffer for store in kernel.stores]
    return frozenset(
        store.buffer
        for store in kernel.stores
        if sizes[store.buffer] >= number("streamed_buffer_bytes")
        and store.expr.dtype.itemsize >= number("streamed_item_bytes")
        and store.mode == "write"
        and store.buffer not in loaded
        and stored.count(store.buffer) == 1
        and not is_scattered(store)
    )


def is_beyond_cache(kernel: Kernel) -> bool:
    """Whether a kernel is known to touch more than the last cache holds."""
    return sum(_bytes(buffer) for buffer in kernel.buffers) >= number("streamed_kernel_bytes")


def _bytes(buffer: Buffer) -> int:
    """Zero where it is not known."""
    return buffer.numel.value * buffer.dtype.itemsize if isinstance(buffer.numel, Int) else 0
