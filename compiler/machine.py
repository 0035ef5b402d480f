"""What is true of the machine that compiles: read off it, or measured when a compile first asks, and kept.

    product = Fact("product of matrices", {"own": f, "library": g}, {"own": 1.0, "library": 1.1})
    product.times().fastest("own", "library")

    number("streamed_kernel_bytes")

A `Fact` is measured. A `Number` is stated, as `NUMBERS` has it: it suits machines like those that it was found on.

One file holds the facts of each processor, number of threads and version of torch: `~/.cache/assay/machine.json`, or
what `ASSAY_MACHINE` names. `ASSAY_MACHINE=default` measures nothing. Under `numbers` a user may state others than ours
there: `{"numbers": {"streamed_kernel_bytes": 67108864}}`. `assay env` prints all of them.
"""

from __future__ import annotations

import functools
import json
import os
import platform
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.utils._python_dispatch import _disable_current_modes

from assay.compiler.journal import say_once
from assay.compiler.options import machine_file

ROUNDS = 7
CACHES = Path("/sys/devices/system/cpu/cpu0/cache")

_lock = threading.RLock()


@dataclass(frozen=True, slots=True)
class Number:
    """What is stated of machines: a value, and what it means."""

    value: int
    meaning: str


NUMBERS: dict[str, Number] = {
    # The caches of a processor.
    "streamed_kernel_bytes": Number(1 << 25, "of all that a kernel touches, from which on no cache holds it"),
    "streamed_buffer_bytes": Number(1 << 24, "of a buffer written past the caches: a smaller one is found there"),
    "streamed_item_bytes": Number(4, "of its elements: smaller ones are not made as fast as memory takes them"),
    "narrow_cut_elements": Number(1 << 16, "of a reduction over few columns that is cut: a cache holds fewer"),
    "wide_cut_elements": Number(1 << 20, "of one over many columns"),
    "fetched_columns": Number(96, "from which on the memory of later rows is asked for: fewer are in registers"),
    "long_columns": Number(800, "from which on it is not: such a row is long enough for the processor"),
    "read_once_elements": Number(1 << 15, "of a matrix summed both ways at once: less is read again as fast"),
    "read_once_rows": Number(256, "of such a matrix, from which on each part of it has rows enough"),
    "read_once_columns": Number(32, "of such a matrix, from which on a row is worth reading for both"),
    "column_totals": Number(1 << 14, "of columns that stay in the second cache while rows are read"),
    "column_lanes": Number(1 << 12, "of columns summed side by side: totals of more leave the first cache"),
    "attended_keys": Number(1 << 12, "that own attention takes: scores of more leave the second cache"),
    # Threads and vectors of a processor.
    "parallel_iterations": Number(8, "of outer loops that leave a fused reduction threads enough"),
    "collapsed_iterations": Number(256, "of outer loops that are enough for all threads: no other loop joins them"),
    "accumulated_step_work": Number(12, "of a step of a sum, up to which it waits for the addition before"),
    # Where ATen's kernels are faster than generated code.
    "concatenated_tensors": Number(4, "that are chosen from at each element: ATen copies more of them faster"),
    "channels_last_window_elements": Number(4, "of a window that is averaged: ATen averages larger ones faster"),
    "selected_elements": Number(6144, "that passes of `topk` read of a row: ATen selects faster than more of them"),
    "parallel_dropout_elements": Number(
        1 << 12, "of a mask drawn by threads: to read the generator's state takes longer than a smaller one"
    ),
    # What a call and a thread cost, in the work that is worth one.
    "product_flops_per_thread": Number(1 << 19, "of a product of matrices that are worth another thread"),
    "attention_flops_per_thread": Number(1 << 20, "of attention that are worth another thread"),
    "own_product_flops": Number(1 << 21, "of a product from which on our own kernel's rate counts"),
    "onednn_product_flops": Number(1 << 24, "of a product from which on oneDNN's rate counts: MKL's call is cheaper"),
    "summed_product_elements": Number(1 << 16, "of a matrix times a vector as a sum: larger ones memory limits"),
    "own_attention_flops": Number(1 << 20, "from which on our own attention's rate counts: its call is dearer"),
    "attention_bytes": Number(1 << 20, "of scores from which on attention by our kernel is faster than written out"),
    "library_attention_bytes": Number(1 << 25, "of scores from which on attention by ATen's kernel is"),
    "trained_attention_bytes": Number(1 << 26, "of scores from which on it is in training, which makes them again"),
    "channels_last_convolutions": Number(3, "for which it pays to convert images"),
    # Computing again or storing, in the units of `schedule/cost.py`.
    "launch_work": Number(4000, "that a kernel's launch costs"),
    "again_work_cpu": Number(8, "of an element that up to three readers compute again, where that moves less"),
    "again_work_cuda": Number(16, "the same on a GPU"),
    "spread_work_cpu": Number(10, "of an element of a value much larger than what it is of, that readers compute"),
    "spread_work_cuda": Number(60, "the same on a GPU: it computes ten numbers while one is stored and loaded"),
    "input_elements_cuda": Number(1 << 14, "of a value of inputs alone, that readers compute: a launch takes longer"),
    # GPUs: found on an H200.
    "busy_instances": Number(264, "of a program that keep a GPU busy: two for each processor"),
    "split_instances": Number(1056, "that a split makes: as many as run at a time"),
    "split_elements": Number(1 << 13, "that an instance reads in less time than another launch takes"),
    "split_gathered_elements": Number(1 << 11, "the same of elements whose places are data"),
    "divided_row_elements": Number(1 << 10, "of a row that is worth two blocks where these leave fewer lanes idle"),
    "shared_memory_bytes": Number(227 << 10, "of shared memory that a launch may take"),
    "odd_product_flops_a_second": Number(240 * 10**12, "of the library's products with rows that begin anywhere"),
    "even_product_flops_a_second": Number(700 * 10**12, "with rows at multiples of 16 bytes"),
    "memory_bytes_a_second": Number(4 * 10**12, "that a GPU reads or writes"),
    "padding_gain_ns": Number(5000, "that padding a product must gain: a kernel's launch"),
    "batched_launch_bytes": Number(1 << 25, "of a launch that takes no longer than it takes to begin eight"),
    "replay_copied_bytes": Number(1 << 26, "of what forward saved that are worth copying at each replay: 30 us"),
    "offloaded_bytes": Number(1 << 20, "of a value that is worth offloading: a smaller copy is all latency"),
}
"""Numbers that were fitted to a machine, by name. The limits of an algorithm stand beside the algorithm."""


def number(name: str) -> int:
    """What the user has stated, else what `NUMBERS` states."""
    return stated().get(name, NUMBERS[name].value)


def number_on(device: str, name: str) -> int:
    """The number of that name for a type of device; 0 where none is stated for it."""
    full = f"{name}_{device}"
    return number(full) if full in NUMBERS else 0


@functools.cache
def stated() -> Mapping[str, int]:
    """The numbers that the user's file states, read once a process. What is no number of ours is said and left out."""
    path = machine_file()
    found: Any = {} if path is None else _kept(path).get("numbers", {})
    taken = {}
    for name, value in found.items() if isinstance(found, dict) else ():
        if name in NUMBERS and type(value) is int and value >= 0:
            taken[name] = value
        else:
            say_once(f"assay: {path} states {name} as {value!r}; `assay env` has the names, each a whole number")
    return taken


@dataclass(frozen=True, slots=True)
class Times:
    """The time of each way to do one thing: in seconds if it `is_measured`, else in any unit."""

    of: Mapping[str, float]
    is_measured: bool

    def fastest(self, *names: str) -> str:
        """The first of the names that no other takes less than 0.95 of the time of."""
        best = min(self.of[name] for name in names)
        return next(name for name in names if best >= 0.95 * self.of[name])


class Fact:
    """How long each of some ways to do one thing takes on this machine.

    `ways` are functions by name, `defaults` their times where nothing is measured.
    """

    def __init__(self, name: str, ways: Mapping[str, Callable[[], object]], defaults: Mapping[str, float]) -> None:
        self.name, self.ways, self.defaults = name, ways, defaults
        self._known: dict[str, Times] = {}

    def times(self) -> Times:
        """Each way is called `ROUNDS` times in turn, and its least time counts. Where one raises the defaults hold, and
        it is asked again by the next process: a compiler may be there then.

        Cost: that of the calls, once a machine; 0.1 ms in a process that finds the file.
        """
        path = machine_file()
        key = "" if path is None else f"{path} {_machine()}"
        with _lock:
            if key not in self._known:
                self._known[key] = Times(self.defaults, False) if path is None else self._found(path)
            return self._known[key]

    def _found(self, path: Path) -> Times:
        kept = _kept(path).get(_machine(), {}).get(self.name, {})
        if kept.keys() == self.ways.keys():
            return Times(kept, True)
        measured = _measured(self.ways)
        if measured is None:
            return Times(self.defaults, False)
        _keep(path, self.name, measured)
        return Times(measured, True)


def facts() -> dict[str, str]:
    """All that is known of this machine, by name, in words."""
    path = machine_file()
    kept = _kept(path).get(_machine(), {}) if path is not None else {}
    read = {"vectors": torch.backends.cpu.get_cpu_capability(), **{f"cache {k}": v for k, v in cache_sizes().items()}}
    return read | {name: _in_words(found) for name, found in sorted(kept.items())}


def numbers() -> dict[str, str]:
    """Each number, by name: its value, what it means, and whether the user has stated it."""
    said = stated()
    return {
        name: f"{number(name):,} {each.meaning}{' (stated)' if name in said else ''}" for name, each in NUMBERS.items()
    }


def cache_sizes() -> dict[str, str]:
    """The sizes of the processor's data caches by level, as Linux tells them; none where it does not."""
    found = {}
    for index in sorted(CACHES.glob("index*")):
        with suppress(OSError):
            if (index / "type").read_text().strip() != "Instruction":
                found[(index / "level").read_text().strip()] = (index / "size").read_text().strip()
    return found


def _in_words(found: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {seconds * 1e6:.0f} us" for name, seconds in found.items())


def _measured(ways: Mapping[str, Callable[[], object]]) -> dict[str, float] | None:
    """The least time of each way, in seconds; None where one of them raises."""
    least = dict.fromkeys(ways, float("inf"))
    with _disable_current_modes(), torch.no_grad():
        for _ in range(ROUNDS + 1):
            for name, way in ways.items():
                began = time.perf_counter()
                try:
                    way()
                except Exception as error:  # as where there is no compiler: whoever uses the way says so
                    say_once(f"assay: {name} is not measured on this machine: {error}")
                    return None
                least[name] = min(least[name], time.perf_counter() - began)
    return least


def _machine() -> str:
    """What facts are kept by."""
    capability = torch.backends.cpu.get_cpu_capability()
    return f"{_model()}, {capability}, {torch.get_num_threads()} threads, torch {torch.__version__}"


@functools.cache
def _model() -> str:
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _kept(path: Path) -> dict[str, dict[str, dict[str, float]]]:
    try:
        found: Any = json.loads(path.read_text())
    except (OSError, ValueError):  # none yet, or damaged: measured anew
        return {}
    return found if isinstance(found, dict) else {}


def _keep(path: Path, name: str, measured: dict[str, float]) -> None:
    """Writes a fact beside the others, in one step. A folder that takes no file leaves it to the process."""
    found = _kept(path)
    found.setdefault(_machine(), {})[name] = measured
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, fresh = tempfile.mkstemp(prefix="machine-", dir=path.parent)
        with os.fdopen(handle, "w") as file:
            json.dump(found, file, indent=1)
        os.replace(fresh, path)
