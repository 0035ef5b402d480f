"""The process that measures one case on one backend: python -m assay.harness.track.measure_worker REQUEST ANSWER.

The answer is `{"verdict": ...}` where it is not as eager, else `{"first_s", "ms", "calls", "kernels", "steady"}`.
`calls` are the thousands of Python functions that compiling calls, which do not depend on the clock. `steady` is what a
fixed eager workload takes in milliseconds.
"""

from __future__ import annotations

import hashlib
import logging
import tempfile
import time
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

from assay.harness.backends.registry import resolve
from assay.harness.bench.steps import make_step
from assay.harness.discover import discover
from assay.harness.measure import Step, alternate, python_calls
from assay.harness.processes.worker import Say, answering
from assay.harness.run import RunRequest, run_case

ROUNDS = 9


def workload() -> Step:
    """The same products and pointwise work on every commit."""
    torch.manual_seed(0)
    a, b = torch.randn(192, 192), torch.randn(192, 192)
    return lambda: (a @ b).tanh().sum().item()


def measure(request: Mapping[str, Any], say: Say) -> None:
    """Says the verdict, or the numbers."""
    (case,) = discover([request["case"]])
    mode, backend = request["mode"], request["backend"]
    with tempfile.TemporaryDirectory(prefix="assay-kernels-") as folder:
        own = f"{backend},dump={folder}" if backend.partition(",")[0] == "assay" else backend
        torch._dynamo.reset()
        step = make_step(case, mode, resolve(own).wrap, size="tiny", seed=0, device="cpu")
        with resolve(backend).ambient():
            first_s, count = counted(step)
            times = alternate(step, workload(), rounds=ROUNDS)
        kernels = hash_of(Path(folder))
    result = run_case(case, mode, backend, RunRequest(timed=False))
    if result.verdict not in ("same", "fell-back"):
        say({"verdict": result.verdict})
        return
    say({"first_s": first_s, "ms": times.ours_ms, "calls": count / 1e3, "kernels": kernels,
         "steady": times.theirs_ms})  # fmt: skip


def counted(step: Callable[[], object]) -> tuple[float, int]:
    """The seconds of a call, and of another one like it how many Python functions it called."""
    start = time.perf_counter()
    step()
    first_s = time.perf_counter() - start
    torch._dynamo.reset()
    return first_s, python_calls(step)


def hash_of(folder: Path) -> str:
    """The hash of the kernels' sources; nothing where none were written down."""
    texts = [path.read_bytes() for path in sorted(folder.glob("*/*source_kernels.py"))]
    return hashlib.sha256(b"\n".join(texts)).hexdigest()[:16] if texts else ""


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    answering(measure)
