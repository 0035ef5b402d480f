"""A slice of the programs of all CPU suites, by a hash of their names: what becomes of their kernels on a GPU.

Run in a process of its own, as Triton either interprets, with TRITON_INTERPRET=1, or compiles, from its import on:

    python -m assay.suites.triton_slice BACKEND

It says a line of JSON a program: `{"program": "zoo.vit infer", "failures": [row, ...], "kernels": [record, ...]}` with
the rows that do not pass, and what kernels were recorded. Of the kernels that are compiled one in VARIANTS_OF is in all
its variants. The whole of a suite, with all variants of all kernels, is `assay run SUITE --backend BACKEND`.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
import importlib.util
import json
import os
import sys
import zlib
from collections.abc import Callable, Sequence
from typing import Any, TextIO

from assay.harness.backends import resources
from assay.harness.backends.registry import FOR_GPU
from assay.harness.batches.batch import How, run_batch
from assay.harness.batches.batch_report import judged
from assay.harness.batches.batch_run import Shard, Unit, plan
from assay.harness.batches.sample import Sample, key_of
from assay.harness.case import MODES, SHAPES, Case
from assay.harness.discover import discover
from assay.harness.judge import ledger
from assay.harness.outcome import Result
from assay.harness.run import RunRequest, run_case
from assay.harness.search.hunt_worker import tried
from assay.suites import ops
from assay.suites.programs import draw

EVERY = {"semantics": 32, "ops": 1200, "zoo": 29}
"""One program of a suite in so many."""
SEED = "triton"
DRAWN = 8
VARIANTS_OF = 4
MOST = 6
"""How many samples of a batch."""

Run = Callable[[str], list[Result]]


def programs() -> dict[str, Run]:
    """What runs each program of the slice on a backend, by its name."""
    return {**_cases("semantics"), **(_cases("zoo") if has_models() else {}), **_batches(), **_drawn()}


def has_models() -> bool:
    return importlib.util.find_spec("transformers") is not None


def _cases(suite: str) -> dict[str, Run]:
    every = [(case, mode) for case in discover([suite]) for mode in case.modes]
    found = {f"{case.name} {mode}": functools.partial(_run_case, case, mode) for case, mode in every}
    return {name: run for name, run in found.items() if is_chosen(name)}


def _batches() -> dict[str, Run]:
    units = plan(ops.batches(), ("",), "", MODES, SHAPES, Shard())
    found = {f"ops.{key_of(unit.batch)}": functools.partial(_run_unit, unit) for unit in units}
    return {name: run for name, run in found.items() if is_chosen(name)}


def _drawn() -> dict[str, Run]:
    return {f"programs.{number}": functools.partial(_run_drawn, number) for number in range(DRAWN)}


def is_chosen(name: str) -> bool:
    return hashed(name) % EVERY[name.partition(".")[0]] == 0


def hashed(name: str) -> int:
    return zlib.crc32(name.encode())


def _run_case(case: Case, mode: str, backend: str) -> list[Result]:
    return [run_case(case, mode, backend, RunRequest(timed=False, quick=True))]


def _run_unit(unit: Unit, backend: str) -> list[Result]:
    return run_batch(unit.batch, How(f"{backend}{unit.backend}", 0, "ops", only=some)).failures


def some(samples: Sequence[Sample]) -> list[Sample]:
    """At most so many, in their order."""
    kept = {sample.name for sample in sorted(samples, key=lambda sample: hashed(sample.name))[:MOST]}
    return [sample for sample in samples if sample.name in kept]


def _run_drawn(number: int, backend: str) -> list[Result]:
    return [tried(draw(f"{SEED}:{number}"), mode, backend) for mode in MODES]


def told(program: Run, backend: str, known: Sequence[ledger.Known]) -> dict[str, Any]:
    """What a program came to, as JSON has it."""
    with resources.recording(None) as file:
        failures = [result for result in program(backend) if not judged(result, known).passes]
        records = resources.read(file)
    return {"failures": list(map(dataclasses.asdict, failures)), "kernels": list(map(dataclasses.asdict, records))}


def main(backend: str) -> None:
    """Runs the slice; whatever a program prints goes to standard error."""
    output = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    if backend == FOR_GPU:
        importlib.import_module("assay.harness.backends.for_gpu").compile_variants_of(VARIANTS_OF)
    known = ledger.read()
    for name, program in programs().items():
        say(output, {"program": name, **told(program, backend, known)})


def say(output: TextIO, answer: dict[str, Any]) -> None:
    print(json.dumps(answer), file=output, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
