"""Measures the commit at hand: first call and steady call of a few models, beside a fixed eager workload.

Each case runs in a process of its own with empty caches. Its time counts only if its result is as eager. With our own
backend, the hash of the kernels' sources goes with it: the same kernels that take longer are the machine's doing.
"""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from assay.harness.processes.child import sharing
from assay.harness.processes.worker import ask, cold_environment
from assay.harness.report.environment import project

WORKER = "assay.harness.track.measure_worker"
CASES = (
    ("zoo.distilbert", "train"),
    ("zoo.llama", "infer"),
    ("zoo.convnext", "infer"),
    ("overhead.tiny_function", "infer"),
)
TIMEOUT_S = 180.0


def position_of(commit: str = "HEAD", folder: Path | None = None) -> int:
    """A commit's place in its history; 0 where there is none."""
    git = shutil.which("git")
    if git is None:
        return 0
    where = str(folder or project())
    said = subprocess.run(
        [git, "-C", where, "rev-list", "--count", commit], capture_output=True, text=True, check=False
    )
    return int(said.stdout) if said.stdout.strip().isdigit() else 0


def measured(
    backends: Sequence[str], limit_s: float, commit: str, cases: Sequence[tuple[str, str]] = CASES,
    say: Callable[[str], None] = lambda text: None,
) -> Iterator[dict[str, Any]]:  # fmt: skip
    """The samples of a commit, as the store keeps them, until the time is up."""
    end_s, place = time.monotonic() + limit_s, position_of()
    for case, mode in cases:
        for backend in backends:
            left_s = end_s - time.monotonic()
            if left_s <= 0:
                return
            for name, value, unit, kernels, steady in _one(case, mode, backend, min(TIMEOUT_S, left_s), say):
                series = f"{name} {case} {mode} {backend}"
                yield {"series": series, "commit": commit, "position": place, "value": value, "unit": unit,
                       "kernels": kernels, "steady": steady}  # fmt: skip


def _one(case: str, mode: str, backend: str, limit_s: float, say: Callable[[str], None]) -> Iterator[Any]:
    with cold_environment() as environment:
        answer = ask(WORKER, {"case": case, "mode": mode, "backend": backend}, limit_s, {**environment, **sharing()})
    for line in answer.lines:
        if "verdict" in line:
            say(f"{case} {mode} {backend}: not timed, as it is {line['verdict']}")
            return
        steady = line["steady"]
        yield "first_call", line["first_s"], "s", line["kernels"], steady
        yield "call", line["ms"], "ms", line["kernels"], steady
        yield "python_calls", line["calls"], "thousand", line["kernels"], None
    if answer.failure:
        say(f"{case} {mode} {backend}: {': '.join(answer.failure)}")
