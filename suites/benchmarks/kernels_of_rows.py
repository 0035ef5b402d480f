"""Single kernels beside eager and Inductor: normalisations, activations and sums of a few megabytes."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional as F

from assay.harness.case import Case, case
from assay.harness.measure import Step

from .subject import BACKENDS, Results, Subject, require_same, results

ROWS, WIDTH = 1024, 512


def _given() -> torch.Tensor:
    return torch.randn(ROWS, WIDTH)


@case(modes=("infer",))
def softmax() -> Any:
    return lambda x: x.softmax(-1), (_given(),), {}


@case(modes=("infer",))
def layer_norm() -> Any:
    return lambda x: F.layer_norm(x, (WIDTH,)), (_given(),), {}


@case(modes=("infer",))
def gelu_of_a_sum() -> Any:
    return lambda x, y: F.gelu(x + y), (_given(), _given()), {}


@case(modes=("infer",))
def greatest_of_columns() -> Any:
    return lambda x: (x * x).amax(0), (_given(),), {}


KERNELS: tuple[Case, ...] = (softmax, layer_norm, gelu_of_a_sum, greatest_of_columns)
NAMES = tuple(f"benchmarks.{each.name}" for each in KERNELS)


class Kernels:
    """A call that is one kernel."""

    timeout = 300
    param_names = ("kernel", "backend")
    params = (NAMES, BACKENDS)
    step: Step

    def setup_cache(self) -> Results:
        return results(NAMES, ("infer",))

    setup_cache.timeout = 900  # type: ignore[attr-defined]

    def setup(self, found: Results, kernel: str, backend: str) -> None:
        subject = Subject(kernel, "infer", backend)
        require_same(found, subject)
        self.step = subject.step()
        for _ in range(3):
            self.step()

    def time_kernel(self, found: Results, kernel: str, backend: str) -> None:
        self.step()
