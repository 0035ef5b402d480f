"""What is true of the machine that compiles: read off it, or measured when a compile first asks, and kept.

    product = Fact("product of matrices", {"own": f, "library": g}, {"own": 1.0, "library": 1.1})
    product.times().fastest("own", "library")

One file holds the facts of each processor, number of threads and version of torch: `~/.cache/assay/machine.json`, or
what `ASSAY_MACHINE` names. `ASSAY_MACHINE=default` measures nothing. `assay env` prints the facts.
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
