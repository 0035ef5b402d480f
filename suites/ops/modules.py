"""ModuleInfos as batches: each module in each dtype, with each of its inputs, through torch.compile.

In training the module is in training mode and every parameter gets its gradient; in inference it is in evaluation.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import torch

from assay.harness.batches.sample import Batch, Sample
from assay.harness.observe.observation import seed_all
from assay.suites.ops.database import module_db
from assay.suites.ops.operators import dtype_name

FIRST = torch.float32


def batches() -> Iterator[Batch]:
    """Every batch of the modules, in the database's order; with dynamic shapes in float32 alone."""
    for info in module_db:
        for dtype in info.supported_dtypes("cpu"):
            group = f"{info.name}.{dtype_name(dtype)}"
            for mode in ("infer", "train"):
                for shapes in ("static", "dynamic") if dtype == FIRST else ("static",):
                    make = functools.partial(_samples, info, dtype, mode == "train")
                    yield Batch(f"{group}.module", group, mode, make, "torch.compile", (shapes,))


def _samples(info: Any, dtype: torch.dtype, training: bool, seed: int) -> list[Sample]:
    seed_all(seed)
    given = info.module_inputs_func(info, device="cpu", dtype=dtype, requires_grad=training, training=training)
    return [_sample(info, number, one, dtype, training) for number, one in enumerate(given)]


def _sample(info: Any, number: int, given: Any, dtype: torch.dtype, training: bool) -> Sample:
    module = info.module_cls(*given.constructor_input.args, **given.constructor_input.kwargs)
    module = module.to(dtype).train(training)
    args, kwargs = given.forward_input.args, given.forward_input.kwargs
    if info.is_lazy:  # it has no parameters before its first call
        with torch.no_grad():
            module(*args, **kwargs)
    return Sample(f"{number} {given.desc}".strip(), module, tuple(args), dict(kwargs))
