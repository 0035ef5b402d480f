"""A call's inputs: real values to fake ones, and which of them share memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch._guards import Source, TracingContext
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from compiler.errors import Unsupported
from compiler.ir.roles import CallInput

Leaf = torch.Tensor | torch.SymInt | int


@dataclass(frozen=True, slots=True)
class CallLeaf:
    """One tensor or integer of a call, by its role; `fake` is what the recording sees in its place."""

    role: CallInput
    fake: Leaf
    requires_grad: bool
    is_leaf: bool


@dataclass(frozen=True, slots=True)
class Call:
    """A call to record: `function` takes the leaves as one flat list and returns its results as one flat list.

    `overlapping` are the leaves (by position) whose memory another leaf shares.
    """

    function: Callable[[list[object]], Sequence[object]]
    leaves: tuple[CallLeaf, ...]
    fake_mode: FakeTensorMode
    overlapping: frozenset[int]


def fake_leaf(role: CallInput, value: Leaf, fake_mode: FakeTensorMode, source: Source | None = None) -> CallLeaf:
    """What the recording sees of one input. With Dynamo's `source` its symbolic sizes are Dynamo's own.

    Raises: Unsupported for layouts and subclasses that the compiler does not take apart yet.
    """
    if not isinstance(value, torch.Tensor):
        return CallLeaf(role, value, False, True)
    if isinstance(value, FakeTensor):
        return CallLeaf(role, value, value.requires_grad, value.is_leaf)
    if is_traceable_wrapper_subclass(value):
        raise Unsupported(f"input {role} is a {type(value).__name__}: tensor subclasses are not compiled yet")
    if value.layout is not torch.strided:
        raise Unsupported(f"input {role} has layout {value.layout}: only strided tensors are compiled")
    context = TracingContext.try_get()
    known = context.tensor_to_context.get(value) if context is not None else None
    fake = fake_mode.from_tensor(value, symbolic_context=known, source=source)
    return CallLeaf(role, fake, value.requires_grad, value.is_leaf)


def overlapping(values: Sequence[object]) -> frozenset[int]:
    """Positions of the tensors whose storage another tensor of `values` has too."""
    owners: dict[int, list[int]] = {}
    for position, value in enumerate(values):
        if isinstance(value, torch.Tensor) and not isinstance(value, FakeTensor):
            owners.setdefault(value.untyped_storage()._cdata, []).append(position)
    return frozenset(position for sharing in owners.values() if len(sharing) > 1 for position in sharing)
