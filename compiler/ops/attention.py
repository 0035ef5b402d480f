"""Attention that a program writes out by hand, as one operator: `assay::attend`, and its derivative.

What a call computes is said in `compiler/runtime/attention.py`.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from compiler.ops.registry import Kind, record
from compiler.runtime import attention

_GIVEN = "Tensor? mask, Tensor[] terms, float[] fills, float scale"
_LIBRARY = torch.library.Library("assay", "DEF")
_LIBRARY.define(f"attend(Tensor q, Tensor k, Tensor v, {_GIVEN}, float limit) -> (Tensor out, Tensor logs)")
_LIBRARY.define(
    "attend_backward(Tensor gradient, Tensor q, Tensor k, Tensor v, Tensor out, Tensor logs,"
    f" {_GIVEN}) -> (Tensor q, Tensor k, Tensor v)"
)


def _empty(value: Tensor) -> Tensor:
    """A result of the kernel: the heads of a position lie together."""
    b, h, s, d = value.shape
    return value.new_empty((b, s, h, d)).transpose(1, 2)


def _attend(q: Tensor, *_: object) -> tuple[Tensor, Tensor]:
    b, h, s = q.shape[:3]
    return _empty(q), q.new_empty((b, s, h)).transpose(1, 2)


def _attend_backward(gradient: Tensor, q: Tensor, k: Tensor, v: Tensor, *_: object) -> Sequence[Tensor]:
    return _empty(q), _empty(k), _empty(v)


_LIBRARY.impl("attend", attention.attend, "CPU")
_LIBRARY.impl("attend_backward", attention.attend_backward, "CPU")
_LIBRARY.impl("attend", _attend, "Meta")
_LIBRARY.impl("attend_backward", _attend_backward, "Meta")

attend = torch.ops.assay.attend.default
attend_backward = torch.ops.assay.attend_backward.default

record(Kind.contraction, None, "assay.attend", "assay.attend_backward")
