"""The process that takes one step apart: python -m assay.harness.track.step_profile_worker REQUEST ANSWER.

The request is `{"case", "mode", "size"}`. The answer is one line, of a step that our compiler makes in this process:

    row        what the harness finds of the case
    stages     the seconds of each stage of the compile; `python` is the rest of the first call, most of it Dynamo
    kernels    of each kernel the nodes that it computes, its launches, the bytes that a launch moves, its time
    roof       what a copy of so many bytes reaches: [bytes, GB/s]
    memory     the bytes that are live along a step, as measured and as planned
    states     every state of the compile as text
"""

from __future__ import annotations

import dataclasses
import logging
import tempfile
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from assay.compiler import journal
from assay.compiler.entry.dynamo import compile_graph
from assay.compiler.ir.loops.index import Int
from assay.compiler.ir.loops.kernel import Kernel
from assay.compiler.options import Options
from assay.compiler.toolchain.load import load_kernels
from assay.harness.bench.memory.live_memory import measure_step
from assay.harness.bench.steps import make_step
from assay.harness.case import Case
from assay.harness.discover import discover
from assay.harness.measure import copy_step, median_ms
from assay.harness.processes.worker import Say, answering
from assay.harness.report.documents import finite
from assay.harness.run import RunRequest, run_case
from assay.harness.track.states import states_in

STEPS = 20
ROOF_BYTES = tuple(1 << power for power in range(12, 27, 2))
ROOF_S = 0.01


@dataclass(slots=True)
class Timed:
    """A kernel with the nanoseconds of its launches in the steps that are timed."""

    graph: int
    name: str
    origins: tuple[str, ...]
    moved_bytes: int | None
    """What a launch moves at least: each buffer once; None where a size is symbolic."""
    times_ns: list[int] = field(default_factory=list)

    def around(self, kernel: Callable[..., Any]) -> Callable[..., Any]:
        """The kernel, timed. Reading the clock takes part of a microsecond, which is in the time."""

        def launch(*args: Any) -> Any:
            start = time.perf_counter_ns()
            result = kernel(*args)
            self.times_ns.append(time.perf_counter_ns() - start)
            return result

        return launch

    def told(self) -> dict[str, Any]:
        """As data. The time is that of the fastest step: what else runs on the machine makes the others slower."""
        launches = max(1, round(len(self.times_ns) / STEPS))
        steps = [self.times_ns[at : at + launches] for at in range(0, len(self.times_ns), launches)]
        best_ns = min((sum(each) / len(each) for each in steps if len(each) == launches), default=0.0)
        return {"graph": self.graph, "name": self.name, "origins": list(dict.fromkeys(self.origins)),
                "launches": launches, "bytes": self.moved_bytes, "us": best_ns / 1e3}  # fmt: skip


def moved_bytes_of(kernel: Kernel) -> int | None:
    """What a launch moves if it touches each buffer once; None where a size is not known."""
    sizes = [buffer.numel for buffer in kernel.buffers]
    if not all(isinstance(size, Int) for size in sizes):
        return None
    return sum(size.value * buffer.dtype.itemsize for size, buffer in zip(sizes, kernel.buffers, strict=True)
               if isinstance(size, Int))  # fmt: skip


@dataclass(slots=True)
class Watched:
    """Our compiler, whose kernels are timed while `timed` holds them."""

    options: Options
    timed: list[Timed] = field(default_factory=list)
    builds: int = 0

    def wrap(self, function: Callable[..., Any]) -> Callable[..., Any]:
        return torch.compile(function, backend=lambda gm, inputs: compile_graph(gm, inputs, self.options, self._load))

    def _load(self, kernels: Sequence[Kernel], options: Options) -> dict[str, Any]:
        self.builds += 1
        loaded = load_kernels(kernels, options)
        for kernel in kernels:
            made = Timed(self.builds, kernel.name, kernel.origins, moved_bytes_of(kernel))
            self.timed.append(made)
            loaded[kernel.name] = made.around(loaded[kernel.name])
        return loaded

    def kernels(self, step: Callable[[], object]) -> list[dict[str, Any]]:
        """The kernels that a step launches, each with its time."""
        for each in self.timed:
            each.times_ns.clear()
        for _ in range(STEPS):
            step()
        return [each.told() for each in self.timed if each.times_ns]


def profile(request: Mapping[str, Any], say: Say) -> None:
    """Says all of it in one line."""
    (case,) = discover([request["case"]])
    mode, size = request["mode"], request["size"]
    row = run_case(case, mode, "assay", RunRequest(size=size, timed=False))
    with tempfile.TemporaryDirectory(prefix="assay-profile-") as folder:
        told = taken_apart(case, mode, size, Path(folder))
    say({"row": finite(dataclasses.asdict(row)), **told, "roof": roof()})


def taken_apart(case: Case, mode: str, size: str, folder: Path) -> dict[str, Any]:
    """A step's stages, kernels, memory and states. `folder` is where the states are written to."""
    torch._dynamo.reset()
    watched = Watched(Options.of({"warm": False, "fallback": "limits", "dump": str(folder)}, None))
    step = make_step(case, mode, watched.wrap, size=size, seed=0, device="cpu")
    before = seconds()
    start = time.perf_counter()
    step()
    first_s = time.perf_counter() - start
    stages = {name: spent for name, end_s in seconds().items() if (spent := end_s - before.get(name, 0.0)) > 0}
    kernels = watched.kernels(step)
    torch._dynamo.reset()
    plain = Watched(Options.of({"warm": False, "fallback": "limits"}, None))
    memory = measure_step(case, mode, plain.wrap, size=size, seed=0)
    return {
        "stages": stages | {"python": max(0.0, first_s - sum(stages.values()))}, "kernels": kernels,
        "memory": {"measured": dataclasses.asdict(memory.measured),
                   "planned": memory.planned and dataclasses.asdict(memory.planned)},
        "states": states_in(folder),
    }  # fmt: skip


def seconds() -> dict[str, float]:
    found: Any = journal.totals()["seconds"]
    return dict(found)


def roof() -> list[tuple[int, float]]:
    """What a copy reaches on this machine, by the bytes that it moves."""
    return [(size, size / median_ms(copy_step(size), rounds=3, sample_s=ROOF_S) / 1e6) for size in ROOF_BYTES]


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    answering(profile)
