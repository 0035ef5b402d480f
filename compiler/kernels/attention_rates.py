"""Whether our own kernel or ATen's attends fastest on this machine.

The defaults are times on two cores of an EPYC with AVX-512, in units of our own: there ours takes 0.43 to 0.77 of
ATen's time.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import torch
from torch import Tensor

from assay.compiler.kernels.flash_attention import DEPTHS, flash_attention
from assay.compiler.machine import Fact

BATCH, HEADS, LENGTH, DEPTH = 2, 4, 197, 64
"""Heads of a vision model: the patches of an image and its class."""
OWN, ATEN = "own", "ATen"


@functools.cache
def _heads() -> Tensor:
    return torch.zeros(BATCH, LENGTH, HEADS, DEPTH).transpose(1, 2)


def _own() -> object:
    return flash_attention(_heads(), _heads(), _heads(), False, None, 1.0)


def _library() -> object:
    forward = torch._C._VariableFunctions._scaled_dot_product_flash_attention_for_cpu
    return forward(_heads(), _heads(), _heads(), 0.0, False, attn_mask=None, scale=1.0)


WAYS: dict[str, Callable[[], object]] = {OWN: _own, ATEN: _library}
ATTENTION = Fact("attention", WAYS, {OWN: 1.0, ATEN: 1.3})


def is_own_fastest() -> bool:
    """Whether our own kernel is there for this processor, and attends faster than ATen's. Cost: 0.1 us."""
    return bool(DEPTHS) and _is_own_fastest(torch.get_num_threads())


@functools.cache
def _is_own_fastest(_threads: int) -> bool:
    return ATTENTION.times().fastest(OWN, ATEN) == OWN
