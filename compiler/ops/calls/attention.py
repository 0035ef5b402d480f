"""Attention as one operator: `assay::flash_attention`, our own kernel; and `assay::attend`, what a program writes out.

What they compute is said in `compiler/kernels/flash_attention.py` and `compiler/kernels/attend.py`.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from assay.compiler.kernels import attend as attention
from assay.compiler.kernels import attention_rates
from assay.compiler.kernels import flash_attention as flash
from assay.compiler.ops.registry import Kind, record

_GIVEN = "Tensor? mask, Tensor[] terms, float[] fills, float scale"
_LIBRARY = torch.library.Library("assay", "DEF")
_LIBRARY.define(f"attend(Tensor q, Tensor k, Tensor v, {_GIVEN}, float limit) -> (Tensor out, Tensor logs)")
_LIBRARY.define(
    "attend_backward(Tensor gradient, Tensor q, Tensor k, Tensor v, Tensor out, Tensor logs,"
    f" {_GIVEN}) -> (Tensor q, Tensor k, Tensor v)"
)
_LIBRARY.define(
    "flash_attention(Tensor q, Tensor k, Tensor v, bool is_causal, Tensor? mask, float scale)"
    " -> (Tensor out, Tensor logs)"
)


def _empty(value: Tensor) -> Tensor:
    """A result of the kernel: the heads of a position lie together."""
    b, h, s, d = value.shape
    return value.new_empty((b, s, h, d)).transpose(1, 2)


def _attend(q: Tensor, *_: object) -> tuple[Tensor, Tensor]:
    b, h, s = q.shape[:3]
    return _empty(q), q.new_empty((b, s, h)).transpose(1, 2)


def _flash_attention(q: Tensor, *_: object) -> tuple[Tensor, Tensor]:
    b, h, s = q.shape[:3]
    return torch.empty_like(q), q.new_empty((b, s, h)).transpose(1, 2)


def _attend_backward(gradient: Tensor, q: Tensor, k: Tensor, v: Tensor, *_: object) -> Sequence[Tensor]:
    return _empty(q), _empty(k), _empty(v)


_LIBRARY.impl("attend", attention.attend, "CPU")
_LIBRARY.impl("attend_backward", attention.attend_backward, "CPU")
_LIBRARY.impl("flash_attention", flash.flash_attention, "CPU")
_LIBRARY.impl("attend", _attend, "Meta")
_LIBRARY.impl("flash_attention", _flash_attention, "Meta")
_LIBRARY.impl("attend_backward", _attend_backward, "Meta")

attend = torch.ops.assay.attend.default
attend_backward = torch.ops.assay.attend_backward.default
flash_attention = torch.ops.assay.flash_attention.default
FLASH_DEPTHS = flash.DEPTHS
"""The elements of a head that `flash_attention` has a kernel for; others it leaves to ATen."""
prepare_flash = flash.prepare
is_own_attention_fastest = attention_rates.is_own_fastest

record(Kind.contraction, None, "assay.attend", "assay.attend_backward", "assay.flash_attention")
