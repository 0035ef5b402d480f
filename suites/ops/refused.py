"""Operators in dtypes that their eager kernels refuse: what eager refuses is refused alike, what it takes is taken.

    refused   infer   the operator, its in-place variant, its result written to tensors of that dtype
    refused   train   the operator, and the gradients that eager may refuse to compute

A sample is made in the operator's first dtype, and its tensors are cast to one that the database does not list for it.
What the database says is only where to look: eager is the judge. `forward`, `in_place` and `out` have all tensors cast,
`into` only those that are written.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from assay.harness.batches.sample import Batch, Sample
from assay.harness.observe.observation import seed_all
from assay.suites.ops.database import op_db
from assay.suites.ops.operators import (
    FIRST,
    UNINITIALISED,
    Call,
    _function,
    _in_place,
    called,
    differentiated,
    dtype_name,
    name_of,
    some,
)

DTYPES = (
    *(torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64),
    *(torch.uint16, torch.uint32, torch.uint64, torch.float16, torch.bfloat16, torch.float32, torch.float64),
    *(torch.complex32, torch.complex64, torch.complex128, torch.float8_e4m3fn, torch.float8_e5m2),
)
"""Those that tensors of numbers have."""
MOST = 2
"""How many samples of an operator in a dtype."""


def batches() -> Iterator[Batch]:
    """Every operator in every dtype that is not its own, in the database's order."""
    for op in op_db:
        yield from operator_batches(op)


def operator_batches(op: Any) -> Iterator[Batch]:
    """The batches of one operator."""
    own = op.supported_dtypes("cpu")
    first = next((dtype for dtype in (*FIRST, *sorted(own, key=str)) if dtype in own), None)
    if first is None:
        return
    for dtype in DTYPES:
        if dtype not in own:
            yield _batch(op, first, dtype, "infer")
        if op.supports_autograd and has_gradients(first, dtype) and dtype not in op.supported_backward_dtypes("cpu"):
            yield _batch(op, first, dtype, "train")


def has_gradients(first: torch.dtype, dtype: torch.dtype) -> bool:
    """Whether gradients exist in the dtype, and for the samples it is made of."""
    return all(one.is_floating_point or one.is_complex for one in (first, dtype))


def _batch(op: Any, first: torch.dtype, dtype: torch.dtype, mode: str) -> Batch:
    group = f"{name_of(op)}.{dtype_name(dtype)}"
    make = functools.partial(_samples, op, first, dtype, mode)
    return Batch(f"{group}.refused", group, mode, make, shapes=("static",), is_together=False)


def _samples(op: Any, first: torch.dtype, dtype: torch.dtype, mode: str, seed: int) -> list[Sample]:
    """A few of the operator's samples in the dtype, in each form that the operator has."""
    seed_all(seed)
    given = list(enumerate(op.sample_inputs("cpu", first, requires_grad=mode == "train")))
    cast = Cast(first, dtype)
    found = []
    for number, sample in some(given, MOST, f"{name_of(op)} {dtype} refused"):
        for form, call in _calls(op, sample, cast, mode):
            found.append(Sample(f"{number} {form}", *call))
    return found


@dataclass(frozen=True, slots=True)
class Cast:
    """Tensors of one dtype in another."""

    first: torch.dtype
    dtype: torch.dtype

    def __call__(self, value: Any) -> Any:
        """The value with all its tensors of the first dtype cast."""
        return pytree.tree_map_only(Tensor, self._tensor, value)

    def _tensor(self, tensor: Tensor) -> Tensor:
        if tensor.dtype is not self.first or tensor.layout is not torch.strided:
            return tensor
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of complex numbers that become real
            made = tensor.detach().to(self.dtype)
        return made.requires_grad_(tensor.requires_grad)

    def sample(self, sample: Any) -> Any:
        """The sample with all its tensors cast."""
        made = type(sample)(self(sample.input), args=self(sample.args), kwargs=self(sample.kwargs))
        made.output_process_fn_grad, made.broadcasts_input = sample.output_process_fn_grad, sample.broadcasts_input
        return made


def _calls(op: Any, sample: Any, cast: Cast, mode: str) -> Iterator[tuple[str, Call]]:
    given = cast.sample(sample)
    if mode == "train":
        yield "backward", differentiated(op, given)
        return
    yield "forward", called(op, given)
    if op.inplace_variant is not None and (call := _in_place(op, given)) is not None:
        yield "in_place", call
    if op.supports_out and op.name not in UNINITIALISED and (out := _result_of(op, sample)) is not None:
        yield "out", _into(op, given, cast(out))
        yield "into", _into(op, sample, cast(out))


def _result_of(op: Any, sample: Any) -> Any | None:
    """Room for the operator's result; None where it is not made of tensors or eager rejects the sample."""
    try:
        result = op.op(sample.input, *sample.args, **sample.kwargs)
    except Exception:
        return None
    if not all(isinstance(leaf, Tensor) and leaf.layout is torch.strided for leaf in pytree.tree_leaves(result)):
        return None
    return pytree.tree_map(lambda tensor: torch.ones_like(tensor), result)


def _into(op: Any, sample: Any, out: Any) -> Call:
    given = tuple(out) if isinstance(out, list | tuple) else out
    return _function(op.op), (sample.input, *sample.args), {**sample.kwargs, "out": given}
