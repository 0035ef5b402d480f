"""Gradients of every OpInfo that has them, and gradients of these: `assay run gradients`.

    gradcheck        the first order alone, of an operator whose gradients have none
    gradgradcheck    the first and the second, of one compile

Torch's own checks in float64 and complex128 decide (harness/batches/gradients.py). They are asked for as the database
does, with its wrapper around the operator, its mode, and what it allows two backwards to differ by.

Samples with nothing to differentiate are left out, and so are those of more than `ELEMENTS` elements. Of the others up
to `MOST` of each operator and dtype run, chosen by a hash of their numbers.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from assay.harness.batches.gradients import Checks
from assay.harness.batches.sample import Batch, Sample
from assay.harness.observe.observation import seed_all
from assay.suites.ops.database import op_db, sets_seed
from assay.suites.ops.operators import dtype_name, name_of, some

MOST = {torch.float64: 12, torch.complex128: 4}
"""How many samples of a dtype."""
ELEMENTS = 1000


def batches() -> Iterator[Batch]:
    """Every batch, in the database's order."""
    for op in op_db:
        for dtype in MOST if op.supports_autograd else ():
            if dtype in op.supported_backward_dtypes("cpu"):
                yield _batch(op, dtype)


def _batch(op: Any, dtype: torch.dtype) -> Batch:
    group = f"{name_of(op)}.{dtype_name(dtype)}"
    checks = Checks(2 if op.supports_gradgrad else 1, op.gradcheck_fast_mode, op.gradcheck_nondet_tol)
    form = "gradgradcheck" if op.supports_gradgrad else "gradcheck"
    make = functools.partial(_samples, op, dtype)
    return Batch(f"{group}.{form}", group, "train", make, shapes=("static",), is_together=False, judge=checks.judge)


def _samples(op: Any, dtype: torch.dtype, seed: int) -> list[Sample]:
    seed_all(seed)
    given = enumerate(op.sample_inputs("cpu", dtype, requires_grad=True))
    small = [(number, sample) for number, sample in given if 0 < _elements(sample) <= ELEMENTS]
    chosen = some(small, MOST[dtype], f"{name_of(op)} {dtype}")
    return [
        Sample(str(number), _checked(op, sample), (sample.input, *sample.args), sample.kwargs)
        for number, sample in chosen
    ]


def _elements(sample: Any) -> int:
    """The elements that gradients are taken with respect to."""
    leaves = pytree.tree_leaves((sample.input, sample.args, sample.kwargs))
    return sum(leaf.numel() for leaf in leaves if isinstance(leaf, Tensor) and leaf.requires_grad)


def _checked(op: Any, sample: Any) -> Callable[..., Any]:
    """The operator within the database's wrapper for checks, and of its result what is differentiable."""
    operator, process, wrapper = op.op, sample.output_process_fn_grad, op.gradcheck_wrapper

    def call(*args: Any, **kwargs: Any) -> Any:
        result = operator(*args, **kwargs) if wrapper is sets_seed else wrapper(operator, *args, **kwargs)
        return process(result)

    return call
