"""The memory that cuBLAS works in, 32 MB on an H200.

Torch keeps such a block for each thread and stream that have called cuBLAS, for good. A recording writes the block
that was its stream's when it was made.

So recordings take theirs from their pool, and it is the pool's again when they end. What plain calls had is given back
then, too: they take a block again when they need it. Where a graph of somebody else may write such a block, all stay
where they are, as it cannot be told to whom one belongs.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import contextmanager

import torch

PoolId = tuple[int, ...]

_own: set[PoolId] = {(0, 0)}
"""The pools that are no others': those of our recordings that there ever were, and that of plain calls."""
_left: set[PoolId] = set()
"""Those for which the block was left. Their recordings may write it, so that none is given back any more."""


@contextmanager
def of_the_pool(pool: PoolId) -> Iterator[None]:
    """What is recorded meanwhile, in a pool of ours, takes its block there; then it is the pool's."""
    _own.add(pool)
    if _left or _others():
        _left.add(pool)
        yield
        return
    torch._C._cuda_clearCublasWorkspaces()
    try:
        yield
    finally:
        torch._C._cuda_clearCublasWorkspaces()


def take() -> None:
    """Takes the block of this thread and stream now, so that it lies beside what comes and not in between."""
    torch.cuda.current_blas_handle()


@functools.cache
def bytes_of(device: int) -> int:
    """The size of such a block: how much more is allocated once one is taken for a stream."""
    with torch.cuda.stream(torch.cuda.Stream(device)):
        before = torch.cuda.memory_allocated(device)
        take()
        return torch.cuda.memory_allocated(device) - before


def _others() -> set[PoolId]:
    """Whose graphs there are besides."""
    return {tuple(each["segment_pool_id"]) for each in torch.cuda.memory_snapshot(include_traces=False)} - _own
