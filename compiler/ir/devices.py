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
