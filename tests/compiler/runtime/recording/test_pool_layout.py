"""How large blocks are placed: as torch's allocator does it, so that a pool grows by little."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assay.compiler.runtime.recording.pool_layout import (
    LARGE_BYTES,
    MOST_EVENTS,
    OWN_SEGMENT_BYTES,
    SEGMENT_BYTES,
    Block,
    Event,
    Freed,
    Packing,
    Returned,
    Taken,
    extension,
    missing,
    segment_for,
)

MB = 1 << 20


def added(events: list[Event], *segments: list[Block]) -> int:
    return Packing(segments).run(events)


def test_segments_are_shared_by_blocks_below_ten_megabytes() -> None:
    assert added([Taken(0, 9 * MB), Taken(1, 9 * MB)]) == SEGMENT_BYTES
    assert added([Taken(0, 9 * MB), Taken(1, 9 * MB), Taken(2, 9 * MB)]) == 2 * SEGMENT_BYTES
    assert added([Taken(0, OWN_SEGMENT_BYTES), Taken(1, OWN_SEGMENT_BYTES + 1)]) == OWN_SEGMENT_BYTES + 12 * MB


def test_a_block_takes_the_smallest_free_one_and_leaves_what_is_large() -> None:
    held = [Block(0, 8 * MB, True), Block(8 * MB, MB, False), Block(9 * MB, 4 * MB, True)]
    packing = Packing([held])
    assert packing.take(2 * MB) == 9 * MB  # of 4 MB 2 are left
    assert packing.take(MB + 512) == 11 * MB  # all 2, as less than a large block would be left
    assert packing.take(2 * MB) == 0
    assert packing.added_bytes == 0


def test_neighbours_that_are_free_are_one_block() -> None:
    held = [Block(0, 4 * MB, False), Block(4 * MB, 4 * MB, False), Block(8 * MB, 4 * MB, False)]
    for order in ([0, 4, 8], [8, 4, 0], [0, 8, 4], [4, 0, 8]):
        assert added([*(Returned(at * MB) for at in order), Taken(0, 12 * MB)], held) == 0
    assert added([Returned(0), Returned(8 * MB), Taken(0, 8 * MB)], held) == SEGMENT_BYTES


def test_what_was_returned_elsewhere_is_no_large_block() -> None:
    assert added([Returned(5), Taken(0, 2 * MB)], [Block(0, 2 * MB, False)]) == SEGMENT_BYTES


def test_a_recording_takes_one_segment_where_single_ones_would_leave_holes() -> None:
    events: list[Event] = [Taken(k, 9 * MB) for k in range(9)]
    assert added(events) == 5 * SEGMENT_BYTES
    more = extension([], events)
    assert 81 * MB <= more < 84 * MB
    packing = Packing([])
    packing.extend(more)
    assert packing.run(events) == more


def test_nothing_is_added_before_what_fits_in_what_there_is() -> None:
    assert extension([[Block(0, 32 * MB, True)]], [Taken(0, 30 * MB)]) == 0
    assert extension([], []) == 0


def test_no_more_than_is_missing_is_added() -> None:
    """A free block in which the first ones fit."""
    events: list[Event] = [Taken(0, 32 * MB), Taken(1, 9 * MB), Taken(2, 9 * MB), Taken(3, 9 * MB)]
    assert extension([[Block(0, 32 * MB, True)]], events) == 28 * MB


def test_of_a_long_recording_few_sizes_are_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    runs, whole = list[int](), Packing.run

    def run(self: Packing, events: list[Event]) -> int:
        runs.append(len(events))
        return whole(self, events)

    monkeypatch.setattr(Packing, "run", run)
    events: list[Event] = [Taken(k, 9 * MB) for k in range(90)]
    extension([], events)
    many = len(runs)
    extension([], events * (1 + MOST_EVENTS // len(events)))
    assert many > 4 and len(runs) - many <= 3 and sum(runs[many:]) <= 3 * (MOST_EVENTS + len(events))


def test_what_is_missing_counts_what_is_free_and_what_is_given_back() -> None:
    events: list[Event] = [Taken(0, 3), Taken(1, 4), Freed(0), Taken(2, 2), Returned(7), Freed(1), Taken(3, 6)]
    assert missing([], events) == 8
    assert missing([[Block(0, 7, True), Block(7, 5, False)]], events) == 0
    assert missing([[Block(0, 7, False), Block(7, 1, False)]], events) == 7
    assert missing([[Block(0, 2, True)]], events) == 6


@st.composite
def lives(draw: st.DrawFn) -> list[Event]:
    """Blocks that are taken and given back in any order."""
    events, live = list[Event](), list[int]()
    for number in range(draw(st.integers(1, 40))):
        while live and draw(st.booleans()):
            events.append(Freed(live.pop(draw(st.integers(0, len(live) - 1)))))
        events.append(Taken(number, draw(st.integers(LARGE_BYTES, 40 * MB))))
        live.append(number)
    return events


@settings(deadline=None)
@given(lives())
def test_blocks_never_overlap_and_are_one_again_in_the_end(events: list[Event]) -> None:
    packing, live = Packing([]), dict[int, tuple[int, int]]()
    for event in events:
        if isinstance(event, Taken):
            address = packing.take(event.bytes)
            assert all(address + event.bytes <= at or at + size <= address for at, size in live.values())
            live[event.block] = address, event.bytes
        elif isinstance(event, Freed):
            packing.give(live.pop(event.block)[0])
    for address, _ in live.values():
        packing.give(address)
    assert not packing.after and not packing.before
    assert sum(size for size, _ in packing.free) == sum(packing.sizes.values()) == packing.added_bytes


@settings(deadline=None)
@given(lives())
def test_an_extension_is_added_only_where_less_is_then_taken(events: list[Event]) -> None:
    more, alone = extension([], events), added(events)
    packing = Packing([])
    if more:
        packing.extend(more)
        assert packing.run(events) < alone
    assert alone >= missing([], events)


@pytest.mark.parametrize(
    ("size", "segment"), [(LARGE_BYTES, 20), (10 * MB - 1, 20), (10 * MB, 10), (10 * MB + 1, 12), (33 * MB, 34)]
)
def test_size_of_segments(size: int, segment: int) -> None:
    assert segment_for(size) == segment * MB
