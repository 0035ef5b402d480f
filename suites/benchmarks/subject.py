"""What is measured, and the proof that it is worth measuring."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch

from assay.harness.backends.registry import resolve
from assay.harness.bench.steps import make_step
from assay.harness.discover import discover
from assay.harness.measure import Step
from assay.harness.outcome import Result
from assay.harness.run import RunRequest, run_case

EAGER = "eager"
"""The program as it is, without `torch.compile`; not Dynamo's backend of that name."""
BACKENDS = ("assay", "inductor", EAGER)
MODES = ("infer", "train")
SEED = 0
CACHES = ("ASSAY_CACHE", "TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR")


class NotSame(AssertionError):
    """A benchmark whose result is not eager's; it has no time to report."""


@dataclass(frozen=True, slots=True)
class Subject:
    """One case in one mode under one backend."""

    case: str
    mode: str
    backend: str

    def step(self) -> Step:
        """A step made afresh; nothing is compiled before its first call."""
        return self.step_under(self._harness_name(self.backend))

    def step_under(self, backend: str) -> Step:
        """The same on a backend by its name in the harness, whatever the subject's own is."""
        (case,) = discover([self.case])
        torch._dynamo.reset()
        return make_step(case, self.mode, resolve(backend).wrap, size="tiny", seed=SEED, device="cpu")

    def result(self) -> Result:
        """What the harness finds when it holds the subject against eager."""
        (case,) = discover([self.case])
        return run_case(case, self.mode, self._harness_name(self.backend), RunRequest(seed=SEED, timed=False))

    @staticmethod
    def _harness_name(backend: str) -> str:
        return "eager-none" if backend == EAGER else backend


Results = dict[Subject, Result]


def results(cases: tuple[str, ...], modes: tuple[str, ...] = MODES) -> Results:
    """The result of every subject, found once for all benchmarks that measure it."""
    subjects = (Subject(case, mode, backend) for case in cases for mode in modes for backend in BACKENDS)
    return {subject: subject.result() for subject in subjects}


def require_same(found: Results, subject: Subject) -> None:
    """Raises: NotSame, which fails the benchmark, unless the subject's verdict is `same`."""
    result = found[subject]
    if result.verdict != "same":
        fields = ", ".join(sorted({difference.field for difference in result.differences}))
        raise NotSame(f"{subject}: {result.verdict} {fields} {result.detail}".rstrip())


@contextmanager
def empty_caches() -> Iterator[None]:
    """Every compile cache in a folder that is new and thrown away."""
    before = {name: os.environ.get(name) for name in CACHES}
    with tempfile.TemporaryDirectory() as folder:
        os.environ.update({name: os.path.join(folder, name) for name in CACHES})
        try:
            yield
        finally:
            for name, value in before.items():
                os.environ.pop(name) if value is None else os.environ.update({name: value})
