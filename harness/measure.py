"""Timing and memory: two steps against each other in alternating rounds, cold compile time, peak memory.

Every ratio is theirs over ours, so above 1 is better for us. A *step* is a call without arguments that does one
inference, or one forward and backward.
"""

from __future__ import annotations

import ctypes
import gc
import math
import resource
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.utils import _pytree as pytree

Step = Callable[[], object]


@dataclass(slots=True)
class CountedStep:
    """A step that counts its calls, and keeps what it raised."""

    step: Step
    calls: int = 0
    failed: Exception | None = None

    def __call__(self) -> object:
        self.calls += 1
        try:
            return self.step()
        except Exception as error:
            self.failed = error
            raise

    def raises_by(self, calls: int) -> bool:
        """Whether the step has raised by the time that it has been called so often."""
        with suppress(Exception):
            while self.calls < calls and self.failed is None:
                self()
        return self.failed is not None


SAMPLE_S = 0.02
"""The least that one sample lasts: short enough for many rounds, long enough to drown the clock and the loop."""
BATCH_S = 0.001
"""The least that one batch of a sample lasts on the CPU. It is shorter than the slices that other processes take away.
So a slice spoils one batch and not the median. On a GPU a sample is one batch, as waiting for it costs."""
WARM_UP_CALLS, WARM_UP_S = 12, 1.0
"""A step is called so often, or for so long, before it is timed. The C library's heap comes to rest after about eight
results of 64 MB. In fresh memory each of them takes three times as long."""
MEMORY_BOUND = "memory-bound"
"""The tag of a case that nothing but moving its inputs and outputs should take time of."""
LARGE_BLOCK = 1 << 16
MOST_PLUGS = 1 << 16
"""Of 60 KB each: what a heap of 4 GB can hold."""
MEMORY_FLOOR_BYTES = 1 << 20
"""Peaks under this are allocator noise; no ratio is made of them."""


@dataclass(frozen=True, slots=True)
class Rounds:
    """Milliseconds a call in each round; `ours[i]` and `theirs[i]` were taken one right after the other."""

    ours: tuple[float, ...]
    theirs: tuple[float, ...]

    @property
    def ours_ms(self) -> float:
        return statistics.median(self.ours)

    @property
    def theirs_ms(self) -> float:
        return statistics.median(self.theirs)

    @property
    def ratio(self) -> float:
        """median(theirs) / median(ours)"""
        return self.theirs_ms / self.ours_ms

    @property
    def spread(self) -> tuple[float, float]:
        """The quartiles of the ratios of single rounds: half of the rounds lie between them."""
        return quartiles([theirs / ours for ours, theirs in zip(self.ours, self.theirs, strict=True)])


def quartiles(values: Sequence[float]) -> tuple[float, float]:
    """The first and third quartile; of one value, that value twice."""
    if len(values) < 2:
        return values[0], values[0]
    first, _, third = statistics.quantiles(values, n=4, method="inclusive")
    return first, third


def geometric_mean(values: Iterable[float | None]) -> float | None:
    """exp(mean(log(values))) of the values that are known and positive; None where there are none."""
    logs = [math.log(value) for value in values if value is not None and value > 0]
    return math.exp(statistics.fmean(logs)) if logs else None


def ratio(theirs: float | None, ours: float | None) -> float | None:
    """theirs / ours, or None where either is unknown or nothing was there to measure."""
    return theirs / ours if theirs and ours else None


def synchronize(device: str) -> None:
    """Waits for the GPU, where there is one to wait for."""
    if device == "cuda":
        torch.cuda.synchronize()


@dataclass(frozen=True, slots=True)
class Sampling:
    """How a step is sampled: `batches` batches of `calls` calls each."""

    calls: int
    batches: int


def batch_ms(step: Step, calls: int, device: str = "cpu") -> float:
    """Milliseconds a call, over `calls` calls in a row."""
    synchronize(device)
    start = time.perf_counter()
    for _ in range(calls):
        step()
    synchronize(device)
    return (time.perf_counter() - start) * 1e3 / calls


def sample_ms(step: Step, sampling: Sampling, device: str = "cpu") -> float:
    """The median batch of a sample, with Python's garbage collector off, as `timeit` has it."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        return statistics.median(batch_ms(step, sampling.calls, device) for _ in range(sampling.batches))
    finally:
        if was_enabled:
            gc.enable()


def warm_up(step: Step, device: str = "cpu") -> None:
    """Calls the step until its memory is at rest: `WARM_UP_CALLS` times, or for `WARM_UP_S` seconds."""
    start = time.perf_counter()
    for _ in range(WARM_UP_CALLS):
        batch_ms(step, 1, device)
        if time.perf_counter() - start > WARM_UP_S:
            break


def calibrate(step: Step, device: str = "cpu", sample_s: float = SAMPLE_S) -> Sampling:
    """How to make a sample last at least `sample_s`, of a step that was warmed up."""
    warm_up(step, device)
    batch_s = min(BATCH_S, sample_s) if device == "cpu" else sample_s
    calls = 1
    while (elapsed_s := batch_ms(step, calls, device) * calls / 1e3) < batch_s:
        calls = max(calls + 1, min(calls * 10, math.ceil(calls * 1.2 * batch_s / max(elapsed_s, 1e-7))))
    return Sampling(calls, math.ceil(sample_s / elapsed_s))


def alternate(ours: Step, theirs: Step, *, rounds: int, device: str = "cpu", sample_s: float = SAMPLE_S) -> Rounds:
    """Times two steps in alternating rounds of one process; who goes first alternates too, so that drift cancels."""
    steps = (ours, theirs)
    samplings = [calibrate(step, device, sample_s) for step in steps]
    times: tuple[list[float], list[float]] = ([], [])
    for number in range(rounds):
        for side in (0, 1) if number % 2 == 0 else (1, 0):
            times[side].append(sample_ms(steps[side], samplings[side], device))
    return Rounds(tuple(times[0]), tuple(times[1]))


def median_ms(step: Step, *, rounds: int, device: str = "cpu", sample_s: float = SAMPLE_S) -> float:
    """The median over `rounds` samples of one step alone."""
    sampling = calibrate(step, device, sample_s)
    return statistics.median(sample_ms(step, sampling, device) for _ in range(rounds))


def moved_bytes(*values: object) -> int:
    """What a program must move at least: each distinct piece of memory of its inputs and results once."""
    tensors = [leaf for leaf in pytree.tree_leaves(values) if isinstance(leaf, torch.Tensor)]
    pieces: dict[tuple[int, int], int] = {}
    for tensor in tensors:
        place = tensor.untyped_storage().data_ptr(), int(tensor.storage_offset())
        pieces[place] = max(pieces.get(place, 0), tensor.numel() * tensor.itemsize)
    return sum(pieces.values())


def copy_step(moved: int, device: str = "cpu") -> Step:
    """A copy that reads and writes `moved` bytes in all: half of them each."""
    source, target = (torch.ones(max(moved // 8, 1), dtype=torch.float32, device=device) for _ in range(2))
    return lambda: target.copy_(source)


def cpu_s() -> float:
    """Seconds that this process and those that it has waited for have had a processor."""
    return sum(sum(resource.getrusage(who)[:2]) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))


def first_call_s(step: Step, device: str = "cpu", clock: Callable[[], float] | None = None) -> float:
    """Seconds that one call takes, by the wall clock or another; of a freshly compiled step, compilation included."""
    clock = clock or time.perf_counter
    synchronize(device)
    start = clock()
    step()
    synchronize(device)
    return clock() - start


def python_calls(step: Step) -> int:
    """How many Python functions a call calls, which does not depend on the clock."""
    calls = 0

    def count(frame: Any, event: str, argument: Any) -> None:
        nonlocal calls
        calls += event == "call"

    sys.setprofile(count)
    try:
        step()
    finally:
        sys.setprofile(None)
    return calls


def python_instructions(step: Step) -> int:
    """How many instructions of Python's interpreter a call executes. It does not depend on the clock, and sees changes
    that call no other function."""
    count = 0

    def executed(frame: Any, event: str, argument: Any) -> Any:
        nonlocal count
        count += event == "opcode"
        return executed

    def entered(frame: Any, event: str, argument: Any) -> Any:
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        return executed

    sys.settrace(entered)
    try:
        step()
    finally:
        sys.settrace(None)
    return count


@dataclass(frozen=True, slots=True)
class ColdCompile:
    """First-call times: under the backend, and under Dynamo's own backend "eager", which only traces."""

    total_s: float
    dynamo_s: float

    @property
    def compile_s(self) -> float:
        """What the backend added to Dynamo; zero where that drowns in the noise."""
        return max(self.total_s - self.dynamo_s, 0.0)


def cold_compile(make_step: Callable[[str | Callable[..., object]], Step], backend: str | Callable[..., object],
                 device: str = "cpu", clock: Callable[[], float] | None = None) -> ColdCompile:  # fmt: skip
    """Compiles afresh with "eager" and with `backend`; `make_step(backend)` gives a step that is not yet compiled.

    The first round is thrown away: it pays for imports that tracing this program needs, which neither side owns.

    Raises: what `make_step` and the step raise.
    """
    seconds = []
    for chosen in ("eager", "eager", backend):
        torch._dynamo.reset()
        seconds.append(first_call_s(make_step(chosen), device, clock))
    return ColdCompile(total_s=seconds[2], dynamo_s=seconds[1])


def peak_bytes(step: Step, device: str = "cpu", calls: int = 3) -> int | None:
    """How far memory rises above its resting level during a warmed-up step; None where the system can't tell.

    CPU: the high-water mark of the resident set, reset before and read after. From here on every large block of this
    process is mapped by itself, so time nothing afterwards.

    GPU: torch's allocator statistics. What torch keeps between steps for the next one counts with what a step takes:
    the memory of recordings (CUDA graphs), and what cuBLAS works in. That is given back before, so no CUDA graph that
    writes it may run afterwards.
    """
    step()
    return _peak_bytes_cuda(step, calls) if device == "cuda" else _peak_bytes_cpu(step, calls)


def _peak_bytes_cuda(step: Step, calls: int) -> int:
    torch.cuda.synchronize()
    torch._C._cuda_clearCublasWorkspaces()
    torch.cuda.reset_peak_memory_stats()
    resting = torch.cuda.memory_allocated()
    for _ in range(calls):
        step()
    torch.cuda.synchronize()
    return torch.cuda.max_memory_allocated() - resting + recorded_bytes()


def recorded_bytes() -> int:
    """What the recordings (CUDA graphs) of this process hold, used or not: memory outside of the allocator's pool."""
    pools = ((tuple(each["segment_pool_id"]), each["total_size"]) for each in torch.cuda.memory_snapshot())
    return sum(size for pool, size in pools if pool != (0, 0))


def _peak_bytes_cpu(step: Step, calls: int) -> int | None:
    gc.collect()
    with _large_blocks_mapped():
        try:
            Path("/proc/self/clear_refs").write_text("5")  # Linux: the high-water mark starts again from here
            resting = _status_bytes("VmRSS")
            for _ in range(calls):
                step()
            return _status_bytes("VmHWM") - resting
        except OSError:
            return None


@contextmanager
def _large_blocks_mapped() -> Iterator[None]:
    """Makes glibc map each large block and unmap it when freed, and gives back what it kept.

    Otherwise the peak counts the holes that the heap happens to have. glibc prefers them to a fresh mapping, and keeps
    their pages once they are freed again. So the holes are taken, untouched, until the end. Another allocator stays as
    it is.
    """
    mmap_threshold = -3  # M_MMAP_THRESHOLD in malloc.h
    plugs: list[int] = []
    libc: Any = None
    with suppress(OSError, AttributeError):
        libc = ctypes.CDLL(None)
        libc.mallopt(mmap_threshold, LARGE_BLOCK)
        libc.malloc_trim(0)
        libc.sbrk.restype = libc.malloc.restype = ctypes.c_void_p
        end = libc.sbrk(0)
        while libc.sbrk(0) == end and len(plugs) < MOST_PLUGS:
            plugs.append(libc.malloc(LARGE_BLOCK - 4096))
    try:
        yield
    finally:
        for plug in plugs:
            libc.free(ctypes.c_void_p(plug))


def _status_bytes(name: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1024
    raise OSError(f"/proc/self/status has no {name}")


def memory_ratio(theirs: int | None, ours: int | None) -> float | None:
    """theirs / ours of two peaks; None where one is unknown or both are too small to say anything.

    A peak below the floor counts as the floor, so that a step which allocates nothing gives a bound, not infinity.
    """
    if theirs is None or ours is None or max(theirs, ours) < MEMORY_FLOOR_BYTES:
        return None
    return max(theirs, MEMORY_FLOOR_BYTES) / max(ours, MEMORY_FLOOR_BYTES)
