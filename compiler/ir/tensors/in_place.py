"""What a program says where it writes in place: what stands for the memory before and after a write, and its parts.

    held  = after(x, early)                 x, which `early` has read
    data  = private(held)                   its memory, with a version of its own
    part  = slice(data, 1, 2, 4)
    done  = copy_(part, k)
    x_1   = after(held, done)               x, which `done` has written: who reads the new value reads x_1

A write and those that read the memory around it are so in order by what they take and give, as all other calls are.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

IS_PLACED = "is_placed"
"""In the `meta` of a node: what it writes and what reads that are in order by their arguments."""

IS_FOLDED = "is_folded"
"""In the `meta` of a `get_attr` node: the compiler made the tensor, which nothing else holds and nothing writes."""


def after(value: torch.Tensor, *done: object) -> torch.Tensor:
    """`value` itself, once the others have been made."""
    return value


def private(value: torch.Tensor) -> torch.Tensor:
    """The same memory, so that a write of it leaves the version of `value` alone."""
    return value.data


def part(value: torch.Tensor, dim: int, start: int, end: int) -> torch.Tensor:
    """A slice that has its version in common with `value`."""
    return torch.ops.aten.slice.Tensor(value, dim, start, end)


def window(value: torch.Tensor, size: Sequence[int], stride: Sequence[int], offset: int) -> torch.Tensor:
    """A view by its strides, from `offset` elements past the first one; its version is that of `value`."""
    return value.as_strided(size, stride, value.storage_offset() + offset)


def version(value: torch.Tensor) -> int:
    """The version of a tensor; inference tensors have none."""
    return 0 if value.is_inference() else value._version


def growth(value: torch.Tensor, before: int) -> int:
    """By how much the version of a tensor has grown."""
    return version(value) - before


def shares_version(value: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether writes of one tensor make the version of the other grow: of views of one base, and not of `.data`."""
    if value.is_inference() or other.is_inference():
        return False
    before = other._version
    torch.autograd.graph.increment_version(value)
    shares = other._version != before
    torch._C._autograd._unsafe_set_version_counter((value,), (value._version - 1,))
    return shares
