"""Time and memory of a step over several GPUs, ours beside others:

    torchrun --nproc-per-node 2 -m assay.suites.distributed.bench --way fsdp --against inductor,eager --json rows.json

Every backend has a model of its own in the same processes. Rounds alternate between them; the first process's median
is told. Memory is what a step takes at its peak beyond what was allocated before it, and what is held between steps:
parameters, gradients, and whatever a backend keeps.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from assay.suites.distributed.training import LARGE, TINY, WAYS, begin, prepared, step_of

WARM_UP = 8
STEPS = 5


def time_ms(step: Callable[[], object]) -> float:
    """Milliseconds a step, in the mean over `STEPS`."""
    _wait()
    began = time.perf_counter()
    for _ in range(STEPS):
        step()
    _wait()
    return (time.perf_counter() - began) * 1000 / STEPS


def peak_bytes(step: Callable[[], object]) -> int:
    """What a step takes beyond what is allocated before it; none is told of a CPU."""
    if not torch.cuda.is_available():
        return 0
    _wait()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    step()
    _wait()
    return torch.cuda.max_memory_allocated() - before


def allocated_bytes() -> int:
    return torch.cuda.memory_allocated() if torch.cuda.is_available() else 0


def _wait() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    dist.barrier()


def measured(way: str, backends: list[str], rounds: int, device: str, batch: int) -> dict[str, Any]:
    mesh = begin(device)
    steps: dict[str, Callable[[], torch.Tensor]] = {}
    row: dict[str, Any] = {"way": way, "processes": dist.get_world_size(), "backends": {}}
    for backend in backends:
        torch._dynamo.reset()
        before = allocated_bytes()
        model, words = prepared(way, backend, replace(LARGE, batch=batch) if device == "cuda" else TINY, device, mesh)
        steps[backend] = step_of(model, words)
        began = time.perf_counter()
        losses = [float(steps[backend]()) for _ in range(WARM_UP)]
        told = {"first_steps_s": time.perf_counter() - began, "loss": losses[-1]}
        told |= {"held_bytes": allocated_bytes() - before}
        row["backends"][backend] = told | {"peak_bytes": peak_bytes(steps[backend]), "rounds_ms": []}
    for _ in range(rounds):
        for backend, step in steps.items():
            row["backends"][backend]["rounds_ms"].append(time_ms(step))
    for told in row["backends"].values():
        told["ms"] = statistics.median(told["rounds_ms"])
    return row


def main() -> None:
    reader = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    reader.add_argument("--way", choices=WAYS, default="fsdp")
    reader.add_argument("--backend", default="assay")
    reader.add_argument("--against", default="inductor,eager")
    reader.add_argument("--rounds", type=int, default=5)
    reader.add_argument("--batch", type=int, default=LARGE.batch)
    reader.add_argument("--json", type=Path)
    given = reader.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    row = measured(given.way, [given.backend, *given.against.split(",")], given.rounds, device, given.batch)
    if dist.get_rank() == 0:
        for backend, told in row["backends"].items():
            taken, held = told["peak_bytes"] / 1e9, told["held_bytes"] / 1e9
            memory = f"{taken:.2f} GB over {held:.2f}"
            print(f"{given.way} {backend}: {told['ms']:.1f} ms, {memory}, loss {told['loss']:.4f}")
        if given.json:
            given.json.write_text(json.dumps(row, indent=1))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
