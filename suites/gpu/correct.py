"""Models at full size beside eager on a GPU: `python -m assay.suites.gpu.correct --mode train --json rows.json bert`.

`tests/suites/zoo/test_zoo_gpu.py` does this at the smallest size, with the same judgement: eager twice, in float64 on
the same numbers, and on neighbouring ones where that is asked for. All of it is on the device, where the model is made
too. Where float64 does not fit in the memory, a difference says that the judgement had no anchor, but eager's own
spread.

Inference is in bfloat16, training in float32. Under autocast nothing that a program takes or gives says how coarsely it
computes. Float64 is then further from eager than float32 could be, so that nothing sound is left to judge by.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from assay.harness.backends.precision import PRECISIONS, at_precision
from assay.harness.case import Case, Made
from assay.harness.discover import discover
from assay.harness.observe.observation import kept_on_host
from assay.harness.outcome import Result
from assay.harness.protocol import acts as protocol
from assay.harness.run import RunRequest, run_case

STEPS = 2
"""A call that compiles, and one more: each is kept whole, for every run of eager's. Large results fit only once."""
ON_HOST = 1 << 20
"""Copies of so many numbers are kept on the host."""
LARGE = frozenset(f"zoo.{name}" for name in ("gpt2", "llama", "qwen2", "gemma2", "mixtral", "t5"))
"""Those of whose results eager's runs in float64 leave room for one step, in 80 GB."""
PRECISION = {"infer": "bfloat16", "train": "float32"}
SHOWN = 5
"""Differences of a row."""


def on_device(case: Case, device: str) -> Case:
    """The case, made where it runs: models of a full size take long to make on a CPU."""

    def make(size: str) -> Made:
        with torch.device(device):
            return case.make(size)

    return dataclasses.replace(case, function=make)


def steps_of(case: Case) -> int:
    return 1 if case.name in LARGE else STEPS


@dataclass(frozen=True, slots=True)
class Setting:
    """How a model is run; where no precision or number of steps is given, as suits the mode and the model."""

    precision: str | None = None
    size: str = "full"
    backend: str = "assay"
    device: str = "cuda"
    steps: int | None = None


def held(case: Case, mode: str, given: Setting = Setting()) -> Result:
    """A model held to eager. Without TF32, whose rounding untrained networks make large differences of."""
    made = at_precision(on_device(case, given.device), mode, given.precision or PRECISION[mode])
    with torch.backends.cudnn.flags(enabled=True, allow_tf32=False), kept_on_host(ON_HOST):
        acts = protocol.steps(mode, given.steps or steps_of(case))
        asked = RunRequest(given.size, device=given.device, timed=False, protocol=acts, quick=True, is_poked=False)
        return run_case(made, mode, given.backend, asked)


def judged(case: Case, given: argparse.Namespace) -> dict[str, Any]:
    """The row of a model."""
    began = time.perf_counter()
    precision, steps = given.precision or PRECISION[given.mode], given.steps or steps_of(case)
    found = held(case, given.mode, Setting(precision, given.size, given.backend, given.device, steps))
    row: dict[str, Any] = {"model": case.name, "mode": given.mode, "size": given.size, "precision": precision}
    row |= {
        "steps": steps,
        "verdict": found.verdict,
        "detail": found.detail,
        "seconds": time.perf_counter() - began,
    }
    row["differences"] = [dataclasses.asdict(each) for each in found.differences[:SHOWN]]
    row |= {"nodes": found.nodes, "nodes_generated": found.nodes_generated}
    if given.device == "cuda":
        row["peak_bytes"] = torch.cuda.max_memory_allocated()
    return row


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m assay.suites.gpu.correct")
    parser.add_argument("models", nargs="*", help="as llama; all of them by default")
    parser.add_argument("--mode", choices=("infer", "train"), default="infer")
    parser.add_argument("--size", choices=("tiny", "small", "full"), default="full")
    parser.add_argument("--precision", choices=PRECISIONS, help="bfloat16 for inference, float32 for training")
    parser.add_argument("--backend", default="assay", help="as assay,cudagraphs=True")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--steps", type=int, help="calls that are judged, each kept whole: 2, of large models 1")
    parser.add_argument("--json", type=Path, help="a row is added as soon as it is there")
    given = parser.parse_args(arguments)
    cases = {case.name.removeprefix("zoo."): case for case in discover(("zoo",))}
    unknown = set(given.models) - cases.keys()
    if unknown:
        parser.error(f"no models of the zoo: {', '.join(sorted(unknown))}")
    rows = []
    for name in given.models or cases:
        rows.append(judged(cases[name], given))
        print(rows[-1], flush=True)
        if given.json is not None:
            given.json.write_text(json.dumps({"torch": torch.__version__, "rows": rows}, indent=1))


if __name__ == "__main__":
    main()
