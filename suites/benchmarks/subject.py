"""What is measured, and the proof that it is worth measuring."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch

from harness.backends import resolve
from harness.discover import discover
from harness.measure import Step
from harness.run import run_case
from harness.steps import make_step

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

    def step(self, backend: str = "") -> Step:
        """A step made afresh; nothing is compiled before its first call. `backend` stands in for the subject's own."""
        (case,) = discover([self.case])
        name = backend or self.backend
        wrap = resolve("eager-none" if name == EAGER and not backend else name).wrap
        torch._dynamo.reset()
        return make_step(case, self.mode, wrap, size="tiny", seed=SEED, device="cpu")

    def verdict(self) -> str:
        """`same`, or the verdict with the fields that differ."""
        (case,) = discover([self.case])
        name = "eager-none" if self.backend == EAGER else self.backend
        result = run_case(case, self.mode, name, seed=SEED, timed=False)
        fields = sorted({difference.field for difference in result.differences})
        return " ".join([result.verdict, *fields, result.detail]).strip()


def verdicts(cases: tuple[str, ...]) -> dict[Subject, str]:
    """The verdict of every subject, found once for all benchmarks that measure it."""
    subjects = (Subject(case, mode, backend) for case in cases for mode in MODES for backend in BACKENDS)
    return {subject: subject.verdict() for subject in subjects}


def require_same(found: dict[Subject, str], subject: Subject) -> None:
    """Raises: NotSame, which fails the benchmark, unless the subject's verdict is `same`."""
    if found[subject] != "same":
        raise NotSame(f"{subject.case} {subject.mode} on {subject.backend}: {found[subject]}")


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
