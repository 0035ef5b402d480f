"""One token of a language model: a Llama in bfloat16 whose cache is written in place."""

from __future__ import annotations

import functools

import torch

from assay.harness.bench.language_worker import hold_to_eager, step_of
from assay.harness.measure import Step

from .language import decode
from .subject import BACKENDS, EAGER

SIZES = {"2 layers of 256": (2, 256), "4 layers of 512": (4, 512)}


class Decode:
    """A step is one token. Before it is timed, the tokens of as many places are held to eager's."""

    timeout = 600
    param_names = ("model", "backend")
    params = (tuple(SIZES), BACKENDS)
    step: Step

    def setup(self, model: str, backend: str) -> None:
        make, name = functools.partial(decode, *SIZES[model]), "eager-none" if backend == EAGER else backend
        torch._dynamo.reset()
        if backend != EAGER:
            hold_to_eager(make, name, "cpu")
        torch.manual_seed(0)
        self.step = step_of(make("cpu"), name)
        for _ in range(3):
            self.step()

    def time_token(self, model: str, backend: str) -> None:
        self.step()
