"""Fresh memory costs more than to fill it: the system gives it out by pages of 4 KB, each at its first write.

Writing 64 MB takes 34 ms into fresh small pages, 10 ms into huge ones, and 6 ms where the memory is there already (one
core of an AMD EPYC). So what a call frees stays with the process for the next one. That holds for blocks above glibc's
largest threshold too, which glibc would map afresh at every call. The largest blocks are asked for in huge pages.
Neither changes any meaning.
"""

from __future__ import annotations

import ctypes
import functools
import math
import mmap
import os
from collections.abc import Callable

import torch

from assay.compiler.options import keeps_memory
from assay.compiler.torch_stubs import empty_strided_cpu

PAGE = mmap.PAGESIZE
HUGE_PAGE_ADVICE: int | None = getattr(mmap, "MADV_HUGEPAGE", None)
TRIM_THRESHOLD, MMAP_THRESHOLD, MMAP_MAX = -1, -3, -4
"""glibc's names for mallopt: from how much free memory at its end the heap is cut, from what size on a block is mapped
by itself, and how many may be."""
BLOCKS_MAPPED = 1 << 16
"""glibc's own number of these."""
LARGEST_MMAP_THRESHOLD = 1 << 25
MOST_KEPT = 1 << 30
"""Bytes of freed memory that the process keeps at the end of the heap, where that is no sixteenth of all memory."""
MOST_FROM_HEAP = 1 << 28
"""Larger blocks are mapped, and given back when they are freed."""


@functools.cache
def _mallopt() -> Callable[[int, int], int] | None:
    try:
        return ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return None


@functools.cache
def keep_freed_memory() -> bool:
    """Lets the C library keep up to a sixteenth of the machine's memory, at most 1 GiB, of what was freed.

    By itself it gives the end of its heap back as soon as that is twice the largest block freed so far. Temporaries of
    each call then come in fresh pages, which took BERT 1 ms of 21. The result is True where it was done, which is once
    a process. A C library without `mallopt` is left as it is.
    """
    mallopt = _mallopt()
    if mallopt is None:
        return False
    kept = min(os.sysconf("SC_PHYS_PAGES") * PAGE // 16, MOST_KEPT)
    return bool(mallopt(MMAP_THRESHOLD, LARGEST_MMAP_THRESHOLD) and mallopt(TRIM_THRESHOLD, kept))


def _find_advise() -> Callable[[int, int, int], int] | None:
    try:
        advise = ctypes.CDLL(None).madvise
    except (OSError, AttributeError):
        return None
    advise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    return advise


_advise = _find_advise() if HUGE_PAGE_ADVICE is not None else None


def empty_large(size: tuple[int, ...], stride: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """An uninitialized tensor from the heap, where what was freed is there already.

    A softmax of 64 MB takes 7 ms so. It takes 14 ms in huge pages, 90 where these have to be made first, and 25 in
    small pages. Beyond `MOST_FROM_HEAP`, or where the heap is the user's own, the tensor's whole pages, not yet
    touched, are asked to be huge.

    Cost: 5 us.
    """
    mallopt = _mallopt()
    if mallopt is not None and math.prod(size) * dtype.itemsize <= MOST_FROM_HEAP and _keeps():
        mallopt(MMAP_MAX, 0)
        try:
            return empty_strided_cpu(size, stride, dtype)
        finally:
            mallopt(MMAP_MAX, BLOCKS_MAPPED)
    made: torch.Tensor = empty_strided_cpu(size, stride, dtype)
    if _advise is not None and HUGE_PAGE_ADVICE is not None:
        first = -(-made.data_ptr() // PAGE) * PAGE
        last = (made.data_ptr() + made.untyped_storage().nbytes()) // PAGE * PAGE
        if last > first:
            _advise(first, last - first, HUGE_PAGE_ADVICE)
    return made


@functools.cache
def _keeps() -> bool:
    return keeps_memory() and keep_freed_memory()
