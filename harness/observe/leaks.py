"""What is still held after a call is over: the storages of its inputs and results, memory that grows by call, and
files and threads that each call leaves."""

from __future__ import annotations

import ctypes
import gc
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef

from assay.harness.calls.clone import Call, is_plain
from assay.harness.calls.cycles import old_objects_set_aside
from assay.harness.calls.tree import walk, walk_call

CALLS = 6
"""Calls over which growth is measured: what fills a cache once is spread over them."""
LEAST_GROWTH = 1 << 16
"""Bytes a call: what Python itself leaves between two collections is far less."""

FILES = Path("/proc/self/fd")
"""Where Linux lists what a process has open."""

ALL_CALLS = CALLS + 2
"""How often the program is called in all, where nothing outlives a call and no memory grows."""

Invoke = Callable[[Call], Any]


def held_after(invoke: Invoke, make: Callable[[], Call]) -> tuple[str, ...]:
    """The paths of the inputs and results whose storage outlives a call that nobody keeps anything of. Those that a
    cycle holds are freed when Python looks for cycles, and are told apart.

    Memory that two calls give is the program's own, as that of a recording is. So what outlives a call is looked at
    after another call too, and must be another storage then.
    """
    with old_objects_set_aside():
        first = _outliving(invoke, make)
        second = _outliving(invoke, make) if first else {}
        return tuple(path for path, storage in second.items() if path in first and first[path].cdata != storage.cdata)


def _outliving(invoke: Invoke, make: Callable[[], Call]) -> dict[str, StorageWeakRef]:
    """The storages of a call's inputs and results that are alive behind it. A weak reference keeps its place taken."""
    watched = _watched(invoke, make())  # nobody here holds the call
    in_use = {path: storage for path, storage in watched.items() if not storage.expired()}
    gc.collect()
    return {f"{path} (in a cycle)" if each.expired() else path: each for path, each in in_use.items()}


def _watched(invoke: Invoke, call: Call) -> dict[str, StorageWeakRef]:
    own = {_place(tensor) for tensor in walk_call(call.function, (), {}).tensors.values() if is_plain(tensor)}
    given = walk((call.args, call.kwargs), "input").tensors
    tensors = given | walk(invoke(call), "output").tensors
    return {
        path: StorageWeakRef(tensor.untyped_storage())
        for path, tensor in tensors.items()
        if is_plain(tensor) and _place(tensor) not in own
    }


def _place(tensor: Tensor) -> int:
    return tensor.untyped_storage()._cdata


def growth_bytes(invoke: Invoke, make: Callable[[], Call]) -> int:
    """By how much the memory in use grows with a call, over `CALLS` of them; 0 where that cannot be read. What is made
    once, a cache or a recording, is no growth: memory that grows is looked at a second time, and must grow again."""
    with old_objects_set_aside():
        invoke(make())
        grown = _grown_over_calls(invoke, make)
        return min(grown, _grown_over_calls(invoke, make)) if grown > LEAST_GROWTH else grown


def _grown_over_calls(invoke: Invoke, make: Callable[[], Call]) -> int:
    gc.collect()
    before = in_use_bytes()
    for _ in range(CALLS):
        invoke(make())
    gc.collect()
    return max(0, in_use_bytes() - before) // CALLS


def opened() -> dict[str, int]:
    """How many files the process has open, where the system tells, and how many threads of Python's run."""
    files = {"an open file of each call": len(list(FILES.iterdir()))} if FILES.is_dir() else {}
    return {**files, "a thread of each call": threading.active_count()}


def left_by_each_call(before: Mapping[str, int], after: Mapping[str, int]) -> tuple[str, ...]:
    """Of what there is one more for each of the calls that were made between."""
    return tuple(name for name, count in after.items() if count - before[name] >= ALL_CALLS)


def in_use_bytes() -> int:
    """What the process has allocated and not freed: by the C library, and on GPUs."""
    device = torch.cuda.memory_allocated() if torch.cuda.is_available() and torch.cuda.is_initialized() else 0
    read = _reader()
    return device + (read() if read is not None else 0)


class _Mallinfo(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in (
        "arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost",
    )]  # fmt: skip


def _reader() -> Callable[[], int] | None:
    """Reads glibc's count of bytes in use; None for another C library."""
    function = getattr(ctypes.CDLL(None), "mallinfo2", None)
    if function is None:
        return None
    function.restype = _Mallinfo

    def read() -> int:
        found = function()
        return int(found.uordblks + found.hblkhd)

    return read


def grows(ours: int, eager: int) -> bool:
    """Whether memory grows with each call where eager's does not."""
    return ours > 2 * eager + LEAST_GROWTH
