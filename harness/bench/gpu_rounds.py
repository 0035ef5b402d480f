"""Steps on a GPU, timed by its own events: in turns, from an empty cache, with the clocks noted.

Within a round every step runs once, and who goes first moves on from round to round, so that drift meets all alike.
Before each a buffer larger than the GPU's cache is written: nothing that an earlier step left there is found. The GPU
then waits for a while, in which the host launches the step: what is timed is the GPU, unless launching takes longer.
"""

from __future__ import annotations

import shutil
import statistics
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch

Step = Callable[[], object]
FLUSHED = 2
"""How many times the cache is written over."""
UNKNOWN_CACHE_BYTES = 1 << 28
WAIT_CYCLES = 1 << 20
"""The GPU's cycles, about half a millisecond, that the host has to launch a step."""
QUERY = ("--query-gpu=clocks.sm,clocks.mem", "--format=csv,noheader,nounits")


class Gpu(Protocol):
    """What timing needs of a GPU."""

    def flush(self) -> None:
        """Writes over all that its cache holds."""

    def timed_ms(self, step: Step) -> float:
        """The milliseconds between an event before the step and one behind it."""

    def clocks_mhz(self) -> tuple[int, int] | None:
        """The clocks of its processors and of its memory; None where nothing tells."""


@dataclass(slots=True)
class Cuda:
    """The current CUDA device."""

    _buffer: torch.Tensor | None = None

    def flush(self) -> None:
        if self._buffer is None:
            facts: Any = torch.cuda.get_device_properties(torch.cuda.current_device())
            size = FLUSHED * (getattr(facts, "L2_cache_size", 0) or UNKNOWN_CACHE_BYTES)
            self._buffer = torch.empty(size, dtype=torch.int8, device="cuda")
        self._buffer.zero_()

    def timed_ms(self, step: Step) -> float:
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        torch.cuda._sleep(WAIT_CYCLES)
        start.record()
        step()
        end.record()
        end.synchronize()
        return float(start.elapsed_time(end))

    def clocks_mhz(self) -> tuple[int, int] | None:
        tool = shutil.which("nvidia-smi")
        if tool is None:
            return None
        place = f"--id={torch.cuda.get_device_properties(torch.cuda.current_device()).uuid!s}"
        place = place if "GPU-" in place else place.replace("--id=", "--id=GPU-")
        said = subprocess.run([tool, place, *QUERY], capture_output=True, text=True, check=False).stdout
        return read_clocks(said)


def read_clocks(said: str) -> tuple[int, int] | None:
    """The clocks of what nvidia-smi says, `1980, 3201`; None for anything else."""
    words = [word.strip() for word in said.strip().partition("\n")[0].split(",")]
    return (int(words[0]), int(words[1])) if len(words) == 2 and all(word.isdecimal() for word in words) else None


@dataclass(frozen=True, slots=True)
class GpuRounds:
    """The milliseconds of each step by round, and the clocks behind each round where they are known."""

    times_ms: Mapping[str, list[float]]
    clocks_mhz: list[tuple[int, int]] = field(default_factory=list)

    def median_ms(self, name: str) -> float:
        return statistics.median(self.times_ms[name])

    @property
    def is_steady(self) -> bool:
        """Whether the clocks of all rounds lie within a twentieth: otherwise the rounds are not of one GPU."""
        processors = [clock for clock, _ in self.clocks_mhz]
        return not processors or min(processors) >= 0.95 * max(processors)


def in_rounds(steps: Mapping[str, Step], rounds: int, gpu: Gpu) -> GpuRounds:
    """Times warmed-up steps in turns; `rounds` times each."""
    names = list(steps)
    made = GpuRounds({name: [] for name in names})
    for number in range(rounds):
        first = number % max(len(names), 1)
        for name in names[first:] + names[:first]:
            gpu.flush()
            made.times_ms[name].append(gpu.timed_ms(steps[name]))
        if (clocks := gpu.clocks_mhz()) is not None:
            made.clocks_mhz.append(clocks)
    return made
