"""Launches of one kernel over other tensors become one launch, on a GPU.

    k(a0, a1); k(b0, b1); k(c0, c1)    ->    k_x3(a0, a1, b0, b1, c0, c1)

A launch takes the device 1 us to begin, and its host more, whatever there is to do. An optimizer's step over small
tensors is little else, and so are the biases that autocast rounds. Each set of buffers stays apart from the others, as
it may run in other instances (`codegen/triton/equal_stores.py`).
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import replace

from assay.compiler.ir.loops.independent_stores import with_buffers
from assay.compiler.ir.loops.index import ONE, Int
from assay.compiler.ir.loops.kernel import Check, Kernel, Launch, Reduce, Scan
from assay.compiler.ir.loops.rewrite import is_scattered, nodes
from assay.compiler.machine import number

DEVICE = "cuda"
MOST_SETS = 32
"""Launches that become one, at most: the program of that one tells the buffers of each from the others'."""
MOST_BUFFERS = 224
"""Arguments of a launch, at most: a function takes 250."""


def is_small(launch: Launch) -> bool:
    """Whether a launch is of little work, element by element, on a GPU."""
    kernel = launch.kernel
    if kernel.device.type != DEVICE or kernel.symbols or any(map(is_scattered, kernel.stores)):
        return False
    if any(isinstance(node, Reduce | Scan | Check) for node in nodes(*(store.expr for store in kernel.stores))):
        return False
    return moved_bytes(kernel) <= number("batched_launch_bytes")


def moved_bytes(kernel: Kernel) -> int:
    """The bytes of all buffers of a kernel whose sizes are known."""
    sizes = [(b.numel.value, b.dtype.itemsize) for b in kernel.buffers if isinstance(b.numel, Int)]
    return sum(count * size for count, size in sizes)


def most_sets(kernel: Kernel) -> int:
    """How many launches of a kernel may become one."""
    return min(MOST_SETS, MOST_BUFFERS // len(kernel.buffers))


def shared_by(launch: Launch) -> frozenset[str]:
    """The tensors of a launch that no other launch may have which is made one with it.

    They are all but single numbers that it reads. No result of the launch has the memory of one, as all results are
    larger.
    """
    written = {store.buffer for store in launch.kernel.stores}
    is_large = all(b.numel is not ONE for b in launch.kernel.buffers if b.name in written)
    pairs = zip(launch.arguments, launch.kernel.buffers, strict=True)
    return frozenset(n for n, b in pairs if not (is_large and b.numel is ONE and b.name not in written))


def together(launches: Sequence[Launch]) -> Launch:
    """One launch for all, of the same kernel over tensors of their own."""
    offsets = [launch.offsets or (0,) * len(launch.arguments) for launch in launches]
    return Launch(
        _over_sets(launches[0].kernel, len(launches)),
        tuple(name for launch in launches for name in launch.arguments),
        (),
        tuple(dict.fromkeys(origin for launch in launches for origin in launch.origins)),
        tuple(offset for each in offsets for offset in each) if any(map(any, offsets)) else (),
    )


@functools.lru_cache(maxsize=64)
def _over_sets(kernel: Kernel, count: int) -> Kernel:
    """The kernel over so many sets of buffers."""
    sets = [with_buffers(kernel, {b.name: f"{b.name}_{number}" for b in kernel.buffers}) for number in range(count)]
    return replace(
        kernel,
        name=f"{kernel.name}_x{count}",
        stores=tuple(store for each in sets for store in each.stores),
        buffers=tuple(buffer for each in sets for buffer in each.buffers),
    )
