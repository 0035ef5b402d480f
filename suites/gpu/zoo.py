"""Models beside Inductor on a GPU: `python -m assay.suites.gpu.zoo --mode train --json zoo.json bert gpt2 llama`.

`assay bench zoo --device cuda` gives verdicts and cold starts, from a process each. This takes one process for all
models, and makes them on the device. A row has the times of alternating rounds, eager's too. It has how long the first
call took, with Dynamo's share, and how far a step's memory rises above what lies there between steps.

Of a suite about overhead, `dynamo_ms` is a call of eager's operators behind Dynamo. `dynamo_own_ms` is the part of it
that Dynamo's guards and frames take: how much less the same takes without Dynamo.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from assay.harness.backends.precision import PRECISIONS, at_precision
from assay.harness.backends.registry import resolve
from assay.harness.bench.bench_worker import OVERHEAD
from assay.harness.bench.steps import make_step
from assay.harness.case import Case
from assay.harness.discover import discover
from assay.harness.measure import Step, alternate, geometric_mean, median_ms, peak_bytes, recorded_bytes

SAMPLE_S = 0.05
WARM_UP = 3
FIRST_CALL = "first_call_at_"
Pause = tuple[float, float]


def measured(case: Case, given: argparse.Namespace, before_timing: Callable[[], None] = lambda: None) -> dict[str, Any]:
    """The row of a model; what failed says so in `error`. `before_timing` is called behind all first calls."""
    row: dict[str, Any] = {"model": case.name, "mode": given.mode}
    torch._dynamo.reset()
    gc.collect()
    torch.cuda.empty_cache()
    try:
        steps = {name: _warm(case, given, name, row) for name in (given.backend, given.against, "eager-none")}
        before_timing()
        ours, theirs, eager = steps.values()
        rounds = alternate(ours, theirs, rounds=given.rounds, device="cuda", sample_s=SAMPLE_S)
        row |= {"ms": rounds.ours_ms, "against_ms": rounds.theirs_ms, "speed_ratio": rounds.ratio}
        row |= {"speed_spread": rounds.spread}
        row["eager_ms"] = median_ms(eager, rounds=given.rounds, device="cuda", sample_s=SAMPLE_S)
        if OVERHEAD in case.tags:
            row |= behind_dynamo(_warm(case, given, "eager", row), eager, given.rounds, "cuda")
    except Exception as error:  # the row says so
        row["error"] = f"{type(error).__name__}: {error}"[:500]
    return row


def behind_dynamo(step: Step, plain: Step, rounds: int, device: str) -> dict[str, float]:
    """What a step of eager's operators takes behind Dynamo, and how much longer that is, in alternating rounds."""
    found = alternate(step, plain, rounds=rounds, device=device, sample_s=SAMPLE_S)
    return {"dynamo_ms": found.ours_ms, "dynamo_own_ms": found.ours_ms - found.theirs_ms}


def _warm(case: Case, given: argparse.Namespace, backend: str, row: dict[str, Any]) -> Step:
    """A step that has run. The row has what its first call took, and its peak of memory."""
    gc.collect()
    torch.cuda.empty_cache()
    before = recorded_bytes()
    with torch.device("cuda"):
        step = make_step(case, given.mode, resolve(backend).wrap, size=given.size, seed=0, device="cuda")
    began = time.monotonic()
    print(f"{case.name}, {given.mode}: first call of {backend}", file=sys.stderr, flush=True)
    step()
    torch.cuda.synchronize()
    ended = time.monotonic()
    row[FIRST_CALL + backend] = began, ended
    for _ in range(WARM_UP):
        step()
    row[f"peak_bytes_{backend}"] = (peak_bytes(step, "cuda") or 0) - before
    return step


def asked(prog: str) -> argparse.ArgumentParser:
    """What can be said of the models, and of how they are compared."""
    parser = argparse.ArgumentParser(prog=prog)
    parser.add_argument("models", nargs="*", help="as llama; all of them by default")
    parser.add_argument("--suite", default="zoo", help="whose cases they are")
    parser.add_argument("--mode", choices=("infer", "train"), default="infer")
    parser.add_argument("--size", choices=("tiny", "small", "full"), default="full")
    parser.add_argument("--precision", choices=PRECISIONS, default="bfloat16")
    parser.add_argument("--backend", default="assay", help="as assay,cudagraphs=True")
    parser.add_argument("--against", default="inductor")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--json", type=Path, help="a row is added as soon as it is measured")
    return parser


def asked_cases(parser: argparse.ArgumentParser, given: argparse.Namespace) -> dict[str, Case]:
    """The cases by the names that are asked for; ends the program, as `parser` does, at one that does not exist."""
    os.environ.setdefault("TORCHINDUCTOR_FORCE_DISABLE_CACHES", "1")
    cases = {case.name.removeprefix(f"{given.suite}."): case for case in discover((given.suite,))}
    unknown = set(given.models) - cases.keys()
    if unknown:
        parser.error(f"no cases of {given.suite}: {', '.join(sorted(unknown))}")
    return {name: cases[name] for name in given.models or cases}


def keep(rows: list[dict[str, Any]], given: argparse.Namespace) -> None:
    """Prints the last row, and writes all of them where that is asked for."""
    print(rows[-1], flush=True)
    if given.json is not None:
        given.json.write_text(json.dumps({"torch": torch.__version__, "settings": str(given), "rows": rows}, indent=1))


def timed_calls(row: dict[str, Any], pauses: Sequence[Pause] = ()) -> dict[str, Any]:
    """The row with the seconds of each first call in the place of its begin and end, less the pauses within it."""
    for key in [key for key in row if key.startswith(FIRST_CALL)]:
        began, ended = row.pop(key)
        row[f"first_call_s_{key.removeprefix(FIRST_CALL)}"] = taken_s(began, ended, pauses)
    return row


def taken_s(began: float, ended: float, pauses: Sequence[Pause]) -> float:
    """The seconds between two times, without those in which the process was stopped."""
    return ended - began - sum(max(0.0, min(ended, until) - max(began, since)) for since, until in pauses)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = asked("python -m assay.suites.gpu.zoo")
    given = parser.parse_args(arguments)
    rows: list[dict[str, Any]] = []
    for case in asked_cases(parser, given).values():
        rows.append(timed_calls(measured(at_precision(case, given.mode, given.precision), given)))
        keep(rows, given)
    print("geometric mean of the speed ratios:", geometric_mean(row.get("speed_ratio") for row in rows))


if __name__ == "__main__":
    main()
