"""Where the time of a step goes, kernel by kernel, ours beside another backend's.

    python -m assay.suites.gpu.kernels_of zoo.llama --mode train --size small --against inductor

Each table has the kernels that a step launches, the dearest first, with how often and microseconds a step. The last
line has what all of them take beside what the step takes. So a step that waits for its host shows as one.
"""

from __future__ import annotations

import argparse
import statistics
from collections import defaultdict
from collections.abc import Sequence

import torch
from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile

from assay.compiler.journal import totals
from assay.harness.backends.precision import PRECISIONS, at_precision
from assay.harness.backends.registry import resolve
from assay.harness.bench.steps import make_step
from assay.harness.discover import discover
from assay.harness.measure import Step, batch_ms

STEPS = 4
WARM_UP = 3
ROUNDS = 5
Row = tuple[str, float, float]
"""A kernel's name, its launches a step and its microseconds a step."""


def kernels(step: Step, device: str) -> list[Row]:
    """What a step runs on the device (on the CPU: ATen's operators), the dearest first. The step is warm."""
    activity = ProfilerActivity.CUDA if device == "cuda" else ProfilerActivity.CPU
    kind = DeviceType.CUDA if device == "cuda" else DeviceType.CPU
    with profile(activities=[activity], acc_events=True) as found:
        for _ in range(STEPS):
            step()
        if device == "cuda":
            torch.cuda.synchronize()
    times: dict[str, list[float]] = defaultdict(list)
    for event in found.events() or ():
        if event.device_type == kind:
            times[event.name].append(event.self_device_time_total if device == "cuda" else event.self_cpu_time_total)
    rows = [(name, len(each) / STEPS, sum(each) / STEPS) for name, each in times.items()]
    return sorted(rows, key=lambda row: -row[2])


def table(rows: Sequence[Row], step_us: float, most: int) -> str:
    """The dearest rows, and the sum of all beside the time of a step."""
    lines = [f"{us:10.1f} us  {launches:7.1f} x  {name[:90]}" for name, launches, us in rows[:most]]
    rest = rows[most:]
    if rest:
        lines.append(f"{sum(us for *_, us in rest):10.1f} us  {sum(n for _, n, _ in rest):7.1f} x  {len(rest)} others")
    lines.append(f"{sum(us for *_, us in rows):10.1f} us in kernels, of {step_us:.1f} us that a step takes")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m assay.suites.gpu.kernels_of")
    parser.add_argument("case", help="as zoo.llama")
    parser.add_argument("--mode", choices=("infer", "train"), default="train")
    parser.add_argument("--size", choices=("tiny", "small", "full"), default="small")
    parser.add_argument("--precision", choices=PRECISIONS, default="float32")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda")
    parser.add_argument("--backend", default="assay", help="as assay,cudagraphs=True")
    parser.add_argument("--against", nargs="*", default=["inductor"], help="other backends")
    parser.add_argument("--most", type=int, default=25, help="rows of a table")
    given = parser.parse_args(arguments)
    suite = given.case.partition(".")[0]
    case = next((case for case in discover((suite,)) if case.name == given.case), None)
    if case is None:
        parser.error(f"{given.case} is no case of {suite}")
    case = at_precision(case, given.mode, given.precision)
    for backend in (given.backend, *given.against):
        torch._dynamo.reset()
        step = make_step(case, given.mode, resolve(backend).wrap, size=given.size, seed=0, device=given.device)
        for _ in range(WARM_UP):
            step()
        step_us = 1e3 * statistics.median(batch_ms(step, STEPS, given.device) for _ in range(ROUNDS))
        print(f"{given.case} {given.mode} {given.size} {given.precision}, {backend}")
        print(table(kernels(step, given.device), step_us, given.most), flush=True)
        if given.device == "cuda" and backend == given.backend:
            print(f"recorded {totals()['recorded']}, not {totals()['unrecorded']}", flush=True)


if __name__ == "__main__":
    main()
