"""Activations that wait for backward in pinned memory of the host. Copies run on a stream of their own beside the
kernels; who asks for one waits for it alone, and the host for those that are behind."""

from __future__ import annotations

import functools
from collections import deque

import torch
from torch import Tensor

MOST_PENDING = 3
"""Copies to the host that may be waiting while the next one is asked for: what they copy still takes memory."""


def offload(value: Tensor) -> Tensor:
    """A copy of a GPU's tensor in pinned memory, of the same size and strides."""
    host = torch.empty_strided(value.size(), value.stride(), dtype=value.dtype, pin_memory=True)
    stream = _stream(value.device)
    stream.wait_stream(torch.cuda.current_stream(value.device))
    with torch.cuda.stream(stream):
        host.copy_(value, non_blocking=True)
        done = torch.cuda.Event()
        done.record()
    value.record_stream(stream)  # its memory is free once the copy is done
    pending = _pending(value.device)
    pending.append(done)
    if len(pending) > MOST_PENDING:
        pending.popleft().synchronize()
    return host


def reload(host: Tensor, device: torch.device) -> Tensor:
    """The tensor that `offload` made `host` of, on its device again."""
    stream, current = _stream(device), torch.cuda.current_stream(device)
    value = torch.empty_strided(host.size(), host.stride(), dtype=host.dtype, device=device)
    stream.wait_stream(current)  # which may still use what had the memory before
    with torch.cuda.stream(stream):
        value.copy_(host, non_blocking=True)
    value.record_stream(stream)
    current.wait_stream(stream)
    return value


@functools.cache
def _pending(device: torch.device) -> deque[torch.cuda.Event]:
    """What tells of each copy from a device that may not be done yet."""
    return deque()


@functools.cache
def _stream(device: torch.device) -> torch.cuda.Stream:
    """The stream of copies to and from a device."""
    return torch.cuda.Stream(device)
