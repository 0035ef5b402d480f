"""Calls of ATen that write beyond their memory, so that the process may die: they are never made.

Such are the gradients of a convolution of single pixels that steps along rows otherwise than along columns. On a CPU
with AVX2, oneDNN computes them (upstream_bugs/convolution_by_uneven_steps_writes_beyond_its_memory.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.fx.experimental.symbolic_shapes import statically_known_true

IS_HARMFUL = torch.backends.cpu.get_cpu_capability() == "AVX2"


def writes_beyond_memory(func: torch._ops.OpOverload, args: Sequence[Any]) -> bool:
    """Whether a call, with arguments as they are recorded, may not be made on this machine."""
    if not IS_HARMFUL or func is not torch.ops.aten.convolution_backward.default:
        return False
    _, x, weight, _, stride, padding, _, transposed, *_ = args
    is_of_pixels = all(statically_known_true(size == 1) for size in weight.shape[2:])
    is_even = all(statically_known_true(step == stride[0]) for step in stride)
    is_bare = all(statically_known_true(size == 0) for size in padding)
    return x.device.type == "cpu" and is_of_pixels and is_bare and not is_even and not transposed
