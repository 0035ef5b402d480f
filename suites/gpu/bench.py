"""How near to a copy's rate kernels come, beside Inductor's: `python -m assay.suites.gpu.bench [part of a name ...]`.

    share = (bytes that must move / time of a call on the device) / (bytes that a copy moves / its time)

Each program runs in alternating rounds, on inputs that take turns, from a cache that was written over. Times are of the
device's own events, as a graph of calls is replayed. The row has the clocks of each round, and what eager computes too.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
from torch.utils import _pytree as pytree

from assay.compiler.entry.dynamo import assay
from assay.harness.bench.gpu_rounds import Cuda, in_rounds
from assay.suites.gpu.programs import PROGRAMS, Moved

ROUNDS = 5
TURNS = 4
"""Sets of inputs."""
CALLS = 8
COPY_BYTES = 1 << 32


def moved_bytes(value: Any) -> int:
    tensors = {id(t): t for t in pytree.tree_leaves(value) if isinstance(t, torch.Tensor)}
    return sum(t.numel() * t.element_size() for t in tensors.values())


def replayed(call: Callable[[], object]) -> Callable[[], None]:
    """What replays so many calls on the device, after calls that warmed it up."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(2):
            call()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(CALLS):
            call()
    graph.replay()
    return graph.replay


def in_turns(function: Callable[..., object], sets: list[tuple[torch.Tensor, ...]]) -> Callable[[], object]:
    turn = iter(range(1 << 60))
    return lambda: function(*sets[next(turn) % len(sets)])


def copy_rate() -> float:
    """Bytes read and written in a second by a copy from the device to itself."""
    source = torch.empty(COPY_BYTES, dtype=torch.uint8, device="cuda").random_()
    target = torch.empty_like(source)
    taken = []
    for _ in range(ROUNDS + 2):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        target.copy_(source)
        end.record()
        torch.cuda.synchronize()
        taken.append(start.elapsed_time(end) / 1e3)
    return 2 * COPY_BYTES / statistics.median(taken[2:])


def measured(program: Moved, backends: list[str], rate: float) -> dict[str, Any]:
    torch.manual_seed(0)
    sets = [program.inputs() for _ in range(TURNS)]
    expected = program.function(*sets[0])
    bytes_moved = moved_bytes(sets[0]) + moved_bytes(expected)
    if program.name.startswith("embedding"):  # the rows that are asked for, not the table
        bytes_moved = moved_bytes(sets[0][0]) * (1 + sets[0][1].shape[1] * sets[0][1].element_size() // 8)
    row: dict[str, Any] = {"name": program.name, "bytes": bytes_moved}
    steps: dict[str, Callable[[], None]] = {}
    for backend in backends:
        torch._dynamo.reset()
        began = time.perf_counter()
        run = compiled(program.function, backend)
        try:
            torch.manual_seed(1)
            found = run(*sets[0])
            row[f"{backend}_compile_s"] = time.perf_counter() - began
            row[f"{backend}_error"] = worst(found, expected)
            steps[backend] = replayed(in_turns(run, sets))
        except Exception as error:  # the row says so
            row[f"{backend}_failed"] = f"{type(error).__name__}: {error}"[:2000]
    rounds = in_rounds(steps, ROUNDS, Cuda())
    row |= {"clocks_mhz": rounds.clocks_mhz, "steady_clocks": rounds.is_steady}
    for backend in steps:
        taken_s = rounds.median_ms(backend) / 1e3 / CALLS
        row[f"{backend}_us"] = taken_s * 1e6
        row[f"{backend}_share"] = bytes_moved / taken_s / rate
    return row


def compiled(function: Callable[..., object], backend: str) -> Callable[..., Any]:
    """The program under a backend; `assay+tune` is ours with tiles that are measured."""
    if backend == "eager":
        return function
    if backend == "assay+tune":
        return torch.compile(function, backend=assay, options={"tune": True})
    return torch.compile(function, backend=assay if backend == "assay" else backend)


def worst(found: Any, expected: Any) -> float:
    """The largest difference over the largest value."""
    pairs = zip(pytree.tree_leaves(found), pytree.tree_leaves(expected), strict=True)
    return max(float((a.double() - b.double()).abs().max() / b.double().abs().max()) for a, b in pairs)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--backends", default="assay,inductor,eager")
    parser.add_argument("--json", default="")
    given = parser.parse_args()
    rate = copy_rate()
    backends = given.backends.split(",")
    print(f"copy {rate / 1e12:.2f} TB/s; {torch.cuda.get_device_name()}, torch {torch.__version__}")
    rows = []
    for program in PROGRAMS:
        if given.names and not any(part in program.name for part in given.names):
            continue
        row = measured(program, backends, rate)
        rows.append(row)
        texts = [
            f"{b} {row[f'{b}_share']:.2f} ({row[f'{b}_us']:.0f} us, error {row[f'{b}_error']:.1e})"
            if f"{b}_share" in row
            else f"{b} FAILED {row.get(f'{b}_failed', '')[:600]}"
            for b in backends
        ]
        print(f"{program.name:22s} " + "  ".join(texts), flush=True)
    for backend in backends:
        shares = [row[f"{backend}_share"] for row in rows if f"{backend}_share" in row]
        if shares:
            print(f"{backend}: geometric mean {statistics.geometric_mean(shares):.2f}, least {min(shares):.2f}")
    if given.json:
        with open(given.json, "w") as file:
            json.dump({"rate": rate, "rows": rows}, file, indent=1)


if __name__ == "__main__":
    main()
