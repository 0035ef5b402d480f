"""What it costs to keep a value for backward, and what to compute it again: picoseconds on a roofline.

    keep     its bytes written (where nothing else needs them in memory), read, and held while backward waits
    again    its elements computed; its bytes written and read once more where a library reads them in backward

The rates are those of two cores of an AVX-512 machine. Only their ratios matter: to keep a value of float32 costs as
much as about five pointwise operators on it.
"""

from __future__ import annotations

import torch
from torch import fx

from compiler.ir.strides import hints, is_known
from compiler.ir.trace import producer
from compiler.ops import kind_of
from compiler.ops.lower import record_of
from compiler.ops.registry import Kind

TRAFFIC = 60
"""A byte written or read."""
HELD = 60
"""A byte that is not free while backward waits: this is the price of memory, not of time."""
ELEMENT = 100
"""An element of a pointwise operator."""


def keep(node: fx.Node, is_in_memory: bool) -> int:
    """`is_in_memory`: forward stores the value whether backward needs it or not."""
    return _bytes(node.meta["val"]) * (HELD + TRAFFIC + (0 if is_in_memory else TRAFFIC))


def again(node: fx.Node, is_stored: bool) -> int:
    """`is_stored`: backward has to store the value, for a call of a library to read."""
    value = node.meta["val"]
    return elements(value) * ELEMENT + (2 * TRAFFIC * _bytes(value) if is_stored else 0)


def is_fused(node: fx.Node) -> bool:
    """Whether a call is computed within kernels, element by element, from what it reads."""
    call, _ = producer(node)
    found = record_of(call.target)
    return found is not None and found.rule is not None and found.kind is not Kind.contraction


def is_elementwise(node: fx.Node) -> bool:
    """Whether each element of the value follows from few of what it reads, so that it is cheap to compute again."""
    return is_fused(node) and kind_of(node.target) in (Kind.pointwise, Kind.creation)


def is_measurable(node: fx.Node) -> bool:
    """Whether a value is one tensor whose size has a hint."""
    value = node.meta.get("val")
    return isinstance(value, torch.Tensor) and all(is_known(size) for size in value.shape)


def elements(value: torch.Tensor) -> int:
    return torch.Size(hints(value.shape)).numel()


def _bytes(value: torch.Tensor) -> int:
    return elements(value) * value.element_size()
