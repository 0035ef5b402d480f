"""Which tiles make a kernel fastest: measured on the device, once, and kept in the cache by kernel and device.

    kernel -> a candidate for each `Change` of its tiles -> machine code -> times in turns -> the fastest

Kernels whose sizes are symbols, and those that check what they read, keep the tiles that follow from their sizes. What
is measured is what a call runs, on memory that holds any numbers.
"""

from __future__ import annotations

import hashlib
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial

import torch

from assay.compiler.codegen.triton.tile_sizes import SPACE, Change
from assay.compiler.ir.loops.index import Int
from assay.compiler.ir.loops.kernel import Buffer, Check, Kernel
from assay.compiler.ir.loops.rewrite import nodes
from assay.compiler.ir.loops.text import show
from assay.compiler.toolchain import cache

KIND = "tune"
LEAST_GAIN = 0.03
"""The share of its time that another choice has to save."""
ROUNDS = 11
FLUSHED_BYTES = 1 << 28
"""What is written between launches, so that no cache holds what the last one left."""
MOST_OF_FREE = 0.25
"""The share of the free memory that a kernel's buffers may take while it is measured."""
LARGEST_INTEGER = 100
DTYPES = (
    *(torch.float32, torch.bfloat16, torch.float16, torch.float64),
    *(torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64),
)
"""Those that random numbers are there in."""

Times = Callable[[Kernel, Sequence[Callable[..., None]]], Sequence[float] | None]
"""The seconds of each of several launches of a kernel, by its buffers' addresses; None where there is no room."""


def is_measurable(kernel: Kernel) -> bool:
    """Whether a run over any numbers does what a call does."""
    has_checks = any(isinstance(node, Check) for node in nodes(*(store.expr for store in kernel.stores)))
    is_known = all(isinstance(buffer.numel, Int) and buffer.dtype in DTYPES for buffer in kernel.buffers)
    return not kernel.symbols and not has_checks and is_known


def kept_choice(kernel: Kernel, machine: str, directory: str) -> Change | None:
    """What was measured before, by whatever process."""
    data = cache.read(directory, _key(kernel, machine), KIND)
    return None if data is None else SPACE[int(data)]


def keep_choice(kernel: Kernel, machine: str, directory: str, change: Change) -> None:
    text = str(SPACE.index(change)).encode()
    cache.fetch(directory, _key(kernel, machine), lambda path: path.write_bytes(text), KIND)


def _key(kernel: Kernel, machine: str) -> str:
    text = show(replace(kernel, name="", origins=()))
    return hashlib.sha256("\0".join((text, machine, repr(SPACE))).encode()).hexdigest()[:40]


def fastest(candidates: Sequence[Change], times: Sequence[float]) -> Change:
    """The choice with the least time; the usual one, which comes first, unless another saves enough of it."""
    best = min(range(len(times)), key=times.__getitem__)
    return candidates[best] if times[best] < (1 - LEAST_GAIN) * times[0] else candidates[0]


def times_on_device(kernel: Kernel, launches: Sequence[Callable[..., None]]) -> Sequence[float] | None:
    """The median seconds of each launch, taken in turns, every time with cold caches."""
    with torch.cuda.device(kernel.device):
        tensors = filled(kernel.buffers, kernel.device)
        if tensors is None:
            return None
        flushed = torch.empty(FLUSHED_BYTES, dtype=torch.uint8, device=kernel.device)
        addresses = [tensor.data_ptr() for tensor in tensors]
        found: list[list[float]] = [[] for _ in launches]
        for launch in launches:
            launch(*addresses)
        for _ in range(ROUNDS):
            for launch, taken in zip(launches, found, strict=True):
                taken.append(seconds_of(partial(launch, *addresses), flushed))
    return [statistics.median(taken) for taken in found]


def seconds_of(run: Callable[[], object], flushed: torch.Tensor) -> float:
    """What a run takes on the device. While that is writing, its host is done with the launch, which so adds nothing to
    the time."""
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    flushed.zero_()
    begin.record()
    run()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) / 1e3


def filled(buffers: Iterable[Buffer], device: torch.device) -> list[torch.Tensor] | None:
    """Memory for the buffers, with random numbers in it; None where the device has too little to spare."""
    sizes = [(buffer.numel.value, buffer.dtype) for buffer in buffers if isinstance(buffer.numel, Int)]
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        if sum(count * dtype.itemsize for count, dtype in sizes) > MOST_OF_FREE * free:
            return None
    return [random_numbers(max(1, count), dtype, device) for count, dtype in sizes]


def random_numbers(count: int, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """Random ones from a generator of their own, so that the program's draws are what they were."""
    generator = torch.Generator(device).manual_seed(0)
    made = torch.empty(count, dtype=dtype, device=device)
    if dtype.is_floating_point:
        return made.normal_(generator=generator)
    return made.random_(0, 2 if dtype is torch.bool else LARGEST_INTEGER, generator=generator)
