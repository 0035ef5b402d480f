"""Rows that begin or end off 16 bytes, read 16 bytes at a time: where the rows of a tile lie in memory.

    x[i*8191 + y], y < 8191         base = i*8191 // 8 * 8, lead = i*8191 % 8, y = k - lead
    tl.load(x + (base + k), mask=k < (lead + 8191 + 7) // 8 * 8)

A mask that changes within 16 bytes makes each element a load of its own. So rows are read up to the next multiple of
16 bytes. What lies beyond them is in memory, since 16 bytes that begin at a multiple of 16 lie on one page. No value
of it is used. A row is stored in two stores: whole 16 bytes, and what is left of them at both ends.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

import torch

from assay.compiler.codegen.loops import affine
from assay.compiler.ir.loops.index import Index, Int
from assay.compiler.ir.loops.kernel import Loop

READ_BYTES = 16
"""What a thread reads at once."""
MOST_WIDTH = 8
"""Elements that rows are read by, at most."""
LEAST_LENGTH = 128
"""Elements of a row that a warp reads at once, four a thread: a shorter row is one access however it lies."""


@dataclass(frozen=True, slots=True)
class Access:
    """A load or a store of an element."""

    index: Index
    dtype: torch.dtype


@dataclass(frozen=True, slots=True)
class Edge:
    """How the rows along a loop lie: they begin at `start`, which is a multiple of `width` elements unless they are led
    to one (`is_led`)."""

    loop: Loop
    start: Index
    width: int
    is_led: bool

    @property
    def lanes(self) -> Index:
        """How many elements a row is at most, counted from the multiple that it begins behind."""
        return self.loop.extent + (self.width - 1) if self.is_led else self.loop.extent

    def width_of(self, dtype: torch.dtype) -> int:
        """The elements of a dtype that are read at once."""
        return min(self.width, width_of(dtype))

    def takes(self, access: Access) -> bool:
        """Whether the access is one along these rows."""
        if affine.stride(access.index, self.loop.var) != Int(1):
            return False
        start = start_of(access.index, self.loop)
        return start == self.start if self.is_led else start % self.width_of(access.dtype) == Int(0)


def edge_of(loop: Loop, accesses: Iterable[Access], outside: Collection[str], extents: affine.Extents) -> Edge | None:
    """How the rows lie that most of the memory is in; None where each begins and ends at a multiple of 16 bytes.

    `outside` are the loops around that of the row: what varies with none of them is read once for all rows.
    """
    if isinstance(loop.extent, Int) and loop.extent.value < LEAST_LENGTH:
        return None
    bytes_of: dict[Index | None, int] = {}
    width_at: dict[Index | None, int] = {}
    for access in accesses:
        if affine.stride(access.index, loop.var) != Int(1):
            continue
        start, width = start_of(access.index, loop), width_of(access.dtype)
        names = affine.names(start)
        known = {name for name in names if name in extents}
        if known - set(outside):  # a place that data gives, or another row's
            continue
        key = None if start % width == Int(0) else start
        is_once = bool(outside) and not known
        bytes_of[key] = bytes_of.get(key, 0) + (0 if is_once else access.dtype.itemsize)
        width_at[key] = max(width_at.get(key, 1), width)
    if not bytes_of:
        return None
    chosen = max(bytes_of, key=lambda key: (bytes_of[key], key is None))
    width = width_at[chosen]
    if width == 1 or (chosen is None and loop.extent % width == Int(0)):
        return None
    return Edge(loop, Int(0) if chosen is None else chosen, width, chosen is not None)


def start_of(index: Index, loop: Loop) -> Index:
    """Where the row of an access begins."""
    return affine.substitute(index, {loop.var: Int(0)})


def width_of(dtype: torch.dtype) -> int:
    return min(MOST_WIDTH, READ_BYTES // dtype.itemsize)


def rounded_up(text: str, width: int) -> str:
    """The text of a number's next multiple, which Triton knows for one."""
    return f"({text} + {width - 1}) // {width} * {width}"


def rounded_down(text: str, width: int) -> str:
    return f"({text}) // {width} * {width}"
