"""How torch's allocator for a GPU would place the large blocks of a recording, so that its pool is extended by little.

Freed blocks become one with free neighbours of their segment. A new block takes the first of the smallest free ones
that it fits in, and leaves the rest if that is large. If there is none, a segment is added.

What a recording takes is known by its plan, so a segment may be added before. Then blocks lie side by side. Each would
else have a segment of its own, with room that is too small for anything.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Sequence
from typing import NamedTuple, TypeAlias

LARGE_BYTES = (1 << 20) + 1
"""The least block that is made of large segments."""
OWN_SEGMENT_BYTES = 10 << 20
"""The least block for which a segment is added as large as it is."""
SEGMENT_BYTES = 20 << 20
"""The segment for a smaller one."""
STEP_BYTES = 2 << 20
"""By what segments differ."""
TRIED = 24
"""Sizes of a segment to be added before, about; of long recordings fewer."""
MOST_EVENTS = 200_000
"""That are gone through in all: half a second."""


class Taken(NamedTuple):
    """A block is taken, which is known by this number from then on."""

    block: int
    bytes: int


class Freed(NamedTuple):
    """A block is given back."""

    block: int


class Returned(NamedTuple):
    """What lay at an address before the recording is given back."""

    address: int


Event: TypeAlias = Taken | Freed | Returned


class Block(NamedTuple):
    """A block of a segment as a snapshot of the allocator has it."""

    address: int
    bytes: int
    is_free: bool


Segments: TypeAlias = Sequence[Sequence[Block]]


class Packing:
    """Segments of large blocks, each from its first address to its last without a hole, and what is added to them."""

    def __init__(self, segments: Segments) -> None:
        self.added_bytes = 0
        self.sizes: dict[int, int] = {}
        self.after: dict[int, int] = {}
        self.before: dict[int, int] = {}
        self.free: list[tuple[int, int]] = []
        self.blocks: dict[int, int] = {}
        self.next_segment = 1 << 62
        for segment in segments:
            last = None
            for address, size, is_free in segment:
                self.sizes[address] = size
                if last is not None:
                    self.after[last], self.before[address] = address, last
                if is_free:
                    insort(self.free, (size, address))
                last = address

    def run(self, events: Iterable[Event]) -> int:
        """The bytes of the segments that are added in all."""
        for event in events:
            if isinstance(event, Taken):
                self.blocks[event.block] = self.take(event.bytes)
            elif isinstance(event, Freed):
                self.give(self.blocks.pop(event.block))
            elif event.address in self.sizes:
                self.give(event.address)
        return self.added_bytes

    def take(self, size: int) -> int:
        """The address of a new block."""
        size = -(-size // 512) * 512
        at = bisect_left(self.free, (size, 0))
        if at == len(self.free):
            self.extend(segment_for(size))
            at = bisect_left(self.free, (size, 0))
        whole, address = self.free.pop(at)
        if whole - size >= LARGE_BYTES:
            self._split(address, size, whole - size)
        return address

    def extend(self, size: int) -> None:
        """Adds a segment."""
        self.added_bytes += size
        self.sizes[self.next_segment] = size
        insort(self.free, (size, self.next_segment))
        self.next_segment += size

    def give(self, address: int) -> None:
        """Makes a block free."""
        above, below = self.after.get(address), self.before.get(address)
        if above is not None and self._hold(above):
            self._join(address, above)
        if below is not None and self._hold(below):
            self._join(below, address)
            address = below
        insort(self.free, (self.sizes[address], address))

    def _hold(self, address: int) -> bool:
        """Takes a block out of the free ones, if it is one."""
        key = self.sizes[address], address
        at = bisect_left(self.free, key)
        is_free = at < len(self.free) and self.free[at] == key
        if is_free:
            del self.free[at]
        return is_free

    def _split(self, address: int, size: int, rest: int) -> None:
        upper, behind = address + size, self.after.get(address)
        self.sizes[address], self.sizes[upper] = size, rest
        self.after[address], self.before[upper] = upper, address
        if behind is not None:
            self.after[upper], self.before[behind] = behind, upper
        insort(self.free, (rest, upper))

    def _join(self, lower: int, upper: int) -> None:
        self.sizes[lower] += self.sizes.pop(upper)
        behind = self.after.pop(upper, None)
        del self.before[upper]
        del self.after[lower]
        if behind is not None:
            self.after[lower], self.before[behind] = behind, lower


def segment_for(size: int) -> int:
    """The bytes of the segment that is added for a block that fits nowhere."""
    return SEGMENT_BYTES if size < OWN_SEGMENT_BYTES else -(-size // STEP_BYTES) * STEP_BYTES


def extension(segments: Segments, events: Sequence[Event]) -> int:
    """How large a segment added before makes those that are added in all the smallest; 0 if none does better than the
    allocator alone."""
    best, least = 0, Packing(segments).run(events)
    first = max(OWN_SEGMENT_BYTES, missing(segments, events))
    tried = max(1, min(TRIED, MOST_EVENTS // max(1, len(events))))
    step = max(STEP_BYTES, (least - first) // tried)
    for size in map(segment_for, range(first, least, step)):
        packing = Packing(segments)
        packing.extend(size)
        taken = packing.run(events)
        if taken < least:
            best, least = size, taken
    return best


def missing(segments: Segments, events: Iterable[Event]) -> int:
    """The bytes that are taken in all more than what is free and what is given back by then."""
    before = {block.address: block.bytes for blocks in segments for block in blocks}
    live, sizes = -sum(block.bytes for blocks in segments for block in blocks if block.is_free), dict[int, int]()
    most = 0
    for event in events:
        if isinstance(event, Taken):
            sizes[event.block] = event.bytes
            live += event.bytes
            most = max(most, live)
        else:
            live -= sizes.pop(event.block) if isinstance(event, Freed) else before.get(event.address, 0)
    return most
