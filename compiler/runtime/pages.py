"""Fresh memory costs more than to fill it: the system gives it out by pages of 4 KB, each at its first write.

Writing 64 MB takes 34 ms into fresh small pages, 10 ms into huge ones, and 6 ms where the memory is there already (one
core of an AMD EPYC). So what a call frees stays with the process for the next one, and blocks above glibc's largest
threshold, which are fresh at every call, are asked for in huge pages. Neither changes any meaning.
"""

from __future__ import annotations

import ctypes
import functools
import mmap
import os
from collections.abc import Callable

import torch
from torch._C._dynamo.guards import _empty_strided_cpu  # type: ignore[attr-defined]

PAGE = mmap.PAGESIZE
HUGE_PAGE_ADVICE: int | None = getattr(mmap, "MADV_HUGEPAGE", None)
TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3
"""glibc's names for mallopt: from how much free memory at its end the heap is cut, and from what size on a block is
mapped by itself."""
LARGEST_MMAP_THRESHOLD = 1 << 25
MOST_KEPT = 1 << 30


@functools.cache
def keep_freed_memory() -> bool:
    """Lets the C library keep up to a sixteenth of the machine's memory, at most 1 GiB, of what was freed.

    By itself it gives the end of its heap back as soon as that is twice the largest block freed so far: temporaries of
    each call then come in fresh pages, which took BERT 1 ms of 21. True where it was done, which is once a process; a
    C library without `mallopt` is left as it is.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return False
    kept = min(os.sysconf("SC_PHYS_PAGES") * PAGE // 16, MOST_KEPT)
    return bool(mallopt(MMAP_THRESHOLD, LARGEST_MMAP_THRESHOLD) and mallopt(TRIM_THRESHOLD, kept))


def _find_advise() -> Callable[[int, int, int], int] | None:
    try:
        advise = ctypes.CDLL(None).madvise
    except (OSError, AttributeError):
        return None
    advise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    return advise  # type: ignore[no-any-return]


_advise = _find_advise() if HUGE_PAGE_ADVICE is not None else None


def empty_large(size: tuple[int, ...], stride: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """An uninitialized tensor whose whole pages, not yet touched, are asked to be huge ones. Cost: 2 us."""
    made: torch.Tensor = _empty_strided_cpu(size, stride, dtype)
    if _advise is not None and HUGE_PAGE_ADVICE is not None:
        first = -(-made.data_ptr() // PAGE) * PAGE
        last = (made.data_ptr() + made.untyped_storage().nbytes()) // PAGE * PAGE
        if last > first:
            _advise(first, last - first, HUGE_PAGE_ADVICE)
    return made
