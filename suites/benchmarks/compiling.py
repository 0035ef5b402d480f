"""What compiling takes, also where clocks are not stable: seconds by stage, calls of Python functions, warm starts."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch

from assay.compiler import journal
from assay.harness.measure import Step, first_call_s, python_calls, python_instructions

from .subject import BACKENDS, EAGER, Results, Subject, empty_caches, require_same, results

CASES = ("zoo.distilbert", "zoo.llama")
COMPILERS = tuple(backend for backend in BACKENDS if backend != EAGER)
STAGES = ("capture", "differentiate", "partition", "lower", "fuse", "plan", "emit", "build kernels")
MODES = ("infer", "train")

Spent = dict[tuple[str, str], dict[str, float]]
"""Seconds by case and mode, then by stage."""


class CompileStages:
    """The seconds that our compiler spends in a stage, over all graphs of a first call with empty caches."""

    timeout = 600
    param_names = ("model", "mode", "stage")
    params = (CASES, MODES, STAGES)

    def setup_cache(self) -> Spent:
        """Compiles each once; asv hands what it returns to every measurement."""
        found = results(CASES)
        return {(case, mode): self._seconds(found, case, mode) for case in CASES for mode in MODES}

    setup_cache.timeout = 1800  # type: ignore[attr-defined]

    def _seconds(self, found: Results, case: str, mode: str) -> dict[str, float]:
        subject = Subject(case, mode, "assay")
        require_same(found, subject)
        before = dict(_spent())
        with empty_caches():
            subject.step()()
        return {name: seconds - before.get(name, 0.0) for name, seconds in _spent().items()}

    def track_stage_s(
        self, seconds: dict[tuple[str, str], dict[str, float]], case: str, mode: str, stage: str
    ) -> float:
        return seconds[case, mode].get(stage, 0.0)

    track_stage_s.unit = "s"  # type: ignore[attr-defined]


def _spent() -> dict[str, float]:
    seconds: Any = journal.totals()["seconds"]
    return dict(seconds)


class CompileCalls:
    """How many Python functions are called to compile a model, and how many of the interpreter's instructions are
    executed. Neither depends on the clock."""

    timeout = 900
    param_names = ("model", "mode", "backend")
    params = (CASES, MODES, COMPILERS)

    def track_thousand_calls(self, case: str, mode: str, backend: str) -> float:
        subject = Subject(case, mode, backend)
        with empty_caches():
            subject.step()()  # imports belong to no model
            return counted(subject, python_calls) / 1e3

    track_thousand_calls.unit = "thousand calls"  # type: ignore[attr-defined]

    def track_thousand_instructions(self, case: str, mode: str, backend: str) -> float:
        subject = Subject(case, mode, backend)
        with empty_caches():
            subject.step()()
            return counted(subject, python_instructions) / 1e3

    track_thousand_instructions.unit = "thousand instructions"  # type: ignore[attr-defined]


def counted(subject: Subject, count: Callable[[Step], int]) -> int:
    """What a first call comes to."""
    step = subject.step()
    torch._dynamo.reset()
    return count(step)


class WarmStart:
    """The first call of a model whose graphs the caches keep."""

    timeout = 600
    param_names = ("model", "mode", "backend")
    params = (CASES, MODES, COMPILERS)

    def setup(self, case: str, mode: str, backend: str) -> None:
        Subject(case, mode, backend).step()()

    def track_warm_s(self, case: str, mode: str, backend: str) -> float:
        torch._dynamo.reset()
        return first_call_s(Subject(case, mode, backend).step())

    track_warm_s.unit = "s"  # type: ignore[attr-defined]


class HarnessRows:
    """How many rows of the semantics suite the harness judges a second: without a compiler, and with each."""

    timeout = 300
    param_names = ("case", "backend")
    params = (("semantics.strided_slices", "semantics.inner_input_mutated_twice"), BACKENDS)

    def track_rows_a_second(self, case: str, backend: str) -> float:
        subject = Subject(case, "infer", backend)
        subject.result()
        start = time.perf_counter()
        for _ in range(3):
            subject.result()
        return 3 / (time.perf_counter() - start)

    track_rows_a_second.unit = "rows/s"  # type: ignore[attr-defined]
