"""The masks of dropout on a GPU as ATen draws them: by Philox, a counter turned into four words by ten rounds.

Source: J. K. Salmon et al., Parallel random numbers: as easy as 1, 2, 3, 2011.

    word       = philox(key = seed, counter = (offset / 4 + call, thread))[lane]
    is kept    = uniform(word) < share, uniform(word) = word / 2^32 + 1 / 2^33 in float32

A generator on a GPU is a seed and an offset, so a mask is a function of two numbers and of a position. Whatever kernel
reads the mask computes it. Nothing has to be kept for backward but the two numbers. Which thread of ATen's launch
draws for which element follows from how many elements each takes at a time. That is found by a trial for each dtype
(`width_of`); where no width gives ATen's mask, ATen draws.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

THREADS = 1 << 30
"""Where no launch of ATen's is followed, four elements are a thread, of so many."""
BLOCK = 256
"""Threads of a block of ATen's launch."""
LANES = 4
"""Words of a call of Philox."""
WIDTHS = (16, 8, 4, 2, 1)
"""Elements that a thread may take at a time."""
LEAST = -(1 << 31)
"""Words are held as int32 in their order: less 2^31."""
_LOW = (1 << 32) - 1
_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_STEPS = (0x9E3779B9, 0xBB67AE85)
_MANY = 1 << 40
"""Elements for which ATen launches as many threads as run at a time."""


def threads_of(numel: int, device: torch.device) -> int:
    """The threads of ATen's launch for so many elements: as many as run at a time, or fewer."""
    properties = torch.cuda.get_device_properties(device)
    most = properties.multi_processor_count * (properties.max_threads_per_multi_processor // BLOCK)
    return BLOCK * min(most, -(-numel // BLOCK))


def calls_of(numel: int, threads: int) -> int:
    """How many calls of Philox a launch reserves for each of its threads."""
    return (numel - 1) // (threads * LANES) + 1


def limit_of(share: float, dtype: torch.dtype) -> int:
    """The greatest word, in its order as int32, of an element that is kept with the probability `share` > 0; ATen
    compares in float32, or in float64 for that dtype."""
    bound = share if dtype is torch.float64 else float(np.float32(share))
    low, high = 0, _LOW  # word 0 is kept, whose number is 2^-33
    while low < high:
        middle = (low + high + 1) // 2
        is_kept = float(np.float32(middle) * np.float32(2**-32) + np.float32(2**-33)) < bound
        low, high = (middle, high) if is_kept else (low, middle - 1)
    return low + LEAST


def reserve_numbers(calls: Sequence[int], device: torch.device) -> Tensor:
    """The seed of the device's default generator and the number of the first call, for launches of so many calls of
    Philox.

    Shapes: int64, [launches, 2], on the device. The generator is left behind them all. Nothing is waited for, as the
    host's memory is pinned.

    Cost: 11 us.

    On a CPU, whose generator has no offset, both are numbers that it draws.

    In a CUDA graph that the user records, they are numbers that ATen draws at each replay. They are as random, but
    give other masks than those that eager would record.
    """
    if device.type == "cpu" or torch.cuda.is_current_stream_capturing():
        return torch.empty(len(calls), 2, dtype=torch.int64, device=device).random_()
    generator = _generator(device)
    offset, seed = generator.get_offset(), generator.initial_seed()
    generator.set_offset(offset + LANES * sum(calls))
    seed = seed - (1 << 64) if seed >> 63 else seed
    starts = itertools.accumulate(calls[:-1], initial=offset // LANES)
    return torch.tensor([(seed, start) for start in starts], pin_memory=True).to(device, non_blocking=True)


def _generator(device: torch.device) -> torch.Generator:
    torch.cuda.init()
    generators: tuple[torch.Generator, ...] = torch.cuda.default_generators
    return generators[torch.cuda.current_device() if device.index is None else device.index]


def dropout_mask(key: Tensor, size: Sequence[int], limit: int, threads: int, width: int) -> Tensor:
    """Which elements of a contiguous tensor are kept (bool): those whose word is at most `limit`. `key` is a row of
    `reserve_numbers`; `threads` and `width` are the launch's."""
    at = torch.arange(math.prod(size), device=key.device)
    call, thread, lane = place_of(at, threads, width)
    return (words(key[0], key[1] + call, thread, lane) <= limit).view(size)


def random_words(key: Tensor, size: Sequence[int]) -> Tensor:
    """A word (int32) for each element of a contiguous tensor: four in a row are one call's. `key` is a row of
    `reserve_numbers`."""
    at = torch.arange(math.prod(size), device=key.device)
    call, thread, lane = place_of(at, THREADS, LANES)
    return words(key[0], key[1] + call, thread, lane).view(size)


def place_of(at: Tensor, threads: int, width: int) -> tuple[Tensor, Tensor, Tensor]:
    """The call, the thread and the lane that give the element at a position its word."""
    group, within = at // width, at % width
    turn, thread = group // threads, group % threads
    drawn = turn * words_a_turn(width) + within  # which of its thread's words
    return drawn // LANES, thread, drawn % LANES


def words_a_turn(width: int) -> int:
    """How many words a thread takes a turn: a pair of elements has a call of its own, single elements share one."""
    return width if width == 1 else max(width, LANES)


def words(seed: Tensor, call: Tensor, thread: Tensor, lane: Tensor) -> Tensor:
    """The words of Philox in their order as int32, from int64 operands that broadcast."""
    counter = [call & _LOW, (call >> 32) & _LOW, thread & _LOW, (thread >> 32) & _LOW]
    key = [seed & _LOW, (seed >> 32) & _LOW]
    for _ in range(10):
        products = [counter[0] * _MULTIPLIERS[0], counter[2] * _MULTIPLIERS[1]]
        high, low = [(p >> 32) & _LOW for p in products], [p & _LOW for p in products]
        counter = [high[1] ^ counter[1] ^ key[0], low[1], high[0] ^ counter[3] ^ key[1], low[0]]
        key = [(k + step) & _LOW for k, step in zip(key, _STEPS, strict=True)]
    chosen = torch.where(lane == 1, counter[1], counter[0])
    chosen = torch.where(lane == 2, counter[2], chosen)
    chosen = torch.where(lane == 3, counter[3], chosen)
    return (chosen + LEAST).to(torch.int32)


def width_for(numel: int, most: int, offset: int) -> int:
    """How many elements a thread takes at a time, of a tensor that begins `offset` elements behind its memory.

    They are no more than leave none over, and no more than may be read at once where they begin.
    """
    return math.gcd(numel, most, offset)


@functools.cache
def width_of(dtype: torch.dtype, device: torch.device) -> int | None:
    """The most elements that a thread of ATen's takes at a time, found by trial; None where no width gives its masks.
    The generator is left as it was. Cost: about 20 ms, once a process."""
    generator = _generator(device)
    state = generator.get_state()
    try:
        numel = 2 * LANES * threads_of(_MANY, device)  # two turns of fours
        found = (width for width in WIDTHS if _is_drawn_so(numel, width, dtype, device))
        width = next(found, None)
        is_right = width and all(_is_drawn_so(numel + more, width, dtype, device) for more in (1, 2))
        return width if is_right else None
    finally:
        generator.set_state(state)


def _is_drawn_so(numel: int, most: int, dtype: torch.dtype, device: torch.device) -> bool:
    """Whether ATen draws as many elements with this width, and leaves the generator where it is expected."""
    (key,), x = reserve_numbers([0], device), torch.ones(numel, dtype=dtype, device=device)
    expected = torch.ops.aten.native_dropout.default(x, 0.5, True)[1]
    (after,), threads = reserve_numbers([0], device), threads_of(numel, device)
    mask = dropout_mask(key, [numel], limit_of(0.5, dtype), threads, width_for(numel, most, 0))
    is_as_far = (after - key).tolist() == [0, calls_of(numel, threads)]
    return is_as_far and torch.equal(mask, expected)
