"""On which devices kernels are generated."""

from __future__ import annotations

import functools
import importlib.util

import torch


def has_kernels(device: torch.device) -> bool:
    """Whether programs on the device become kernels; elsewhere every operator is a call to ATen."""
    return device.type == "cpu" or (device.type == "cuda" and has_triton())


@functools.cache
def has_triton() -> bool:
    """Whether Triton is there."""
    return importlib.util.find_spec("triton") is not None


LEAST, LEAST_OF_BFLOAT16 = (7, 0), (8, 0)
"""The capabilities of GPUs that Triton compiles for, and for which it knows bfloat16."""


@functools.cache
def least_capability() -> tuple[int, int] | None:
    """That of the oldest GPU of this process; None where there is none. It sets CUDA up: only programs on a GPU ask."""
    if not torch.cuda.is_available():
        return None
    return min(torch.cuda.get_device_capability(device) for device in range(torch.cuda.device_count()))
