"""Kernels on a GPU as they were compiled before: machine code from the cache, and the texts that launch it.

    Launched -> load the code -> the function that launches it -> the kernel's callable, as `triton_launch` made it

Nothing of Triton is needed, nor imported, unless a call comes that the code was not compiled for. Such a call has
addresses that are no multiples of 16, or more elements than 32 bits count.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.util
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from assay.compiler.options import Options
from assay.compiler.toolchain import cache
from assay.compiler.toolchain.gpu.cuda_launch import launch_cuda, load_cuda
from assay.compiler.toolchain.launch import Loaded

KIND = "cubin"
Launcher = Callable[..., None]


@dataclass(frozen=True, slots=True)
class Code:
    """Machine code that the driver launches: where the cache has it, its function, and what a launch of it takes."""

    key: str
    name: str
    threads: int
    shared: int


@dataclass(frozen=True, slots=True)
class Launched:
    """A kernel on a GPU: what the code was compiled for, the kernel as text, and its two functions as text.

    `launch` launches the `codes`, one after the other, by the names `run_0`, `function_0` and so on; `start` is the
    kernel's callable, which takes `run`, that function, and `otherwise` for calls that it is not compiled for.
    """

    machine: str
    device: int
    kernel: str
    codes: tuple[Code, ...]
    launch: str
    start: str


def kept_code(data: bytes, directory: str) -> str:
    """The key under which machine code is in the cache from now on."""
    key = hashlib.sha256(data).hexdigest()[:40]
    cache.fetch(directory, key, lambda path: path.write_bytes(data), KIND)
    return key


@functools.cache
def machine_of(device: int) -> str:
    """What machine code and the choice of programs depend on: the device, and Triton."""
    return f"{cache.device_features(device)} {_triton()}"


@functools.cache
def _triton() -> str:
    """Triton as files, which is not imported: releases come under several names, and nightly ones under one version."""
    found = importlib.util.find_spec("triton")
    if found is None or found.origin is None:
        return "no triton"
    package = Path(found.origin)
    library = package.parent / "_C" / "libtriton.so"
    size = library.stat().st_size if library.exists() else 0
    return f"triton {hashlib.sha256(package.read_bytes()).hexdigest()} {size}"


def load_again(
    places: Mapping[str, Launched], options: Options, otherwise: Callable[[Launched], Launcher]
) -> Loaded | None:
    """Kernels that were compiled before, by their names; None where the cache holds the code of one of them no more, or
    it was compiled for another device. `otherwise` gives what launches a kernel for calls that its code is not for."""
    found = Loaded()
    launch = launch_cuda() if places else None
    for name, place in places.items():
        if launch is None or place.device >= torch.cuda.device_count() or place.machine != machine_of(place.device):
            return None
        codes = [cache.read(options.cache, code.key, KIND) for code in place.codes]
        if None in codes:
            return None
        pairs = zip(codes, place.codes, strict=True)
        functions = [load_cuda(data, code.name, code.shared, place.device) for data, code in pairs if data is not None]
        run = defined(place.launch, "launch", launch_names(place.device, [(launch, each, None) for each in functions]))
        found.add(name, place, defined(place.start, "start", {"run": run, "otherwise": otherwise(place)}))
    return found


def launch_names(device: int, runs: list[tuple[Launcher, int, Any]]) -> dict[str, object]:
    """What the text of a launch names."""
    names: dict[str, object] = {"stream_of": torch._C._cuda_getCurrentRawStream, "on_device": torch.cuda.device}
    names |= {"device_now": torch._C._cuda_getDevice, "device": torch.device("cuda", device)}
    names |= {"empty": torch.empty, "u8": torch.uint8}
    for number, (run, function, more) in enumerate(runs):
        names |= {f"run_{number}": run, f"function_{number}": function, f"more_{number}": more}
    return names


def defined(text: str, name: str, names: Mapping[str, object]) -> Launcher:
    """The function of that name in a text."""
    module: dict[str, Any] = dict(names)
    exec(compile(text, f"<assay launch {hashlib.sha256(text.encode()).hexdigest()[:16]}>", "exec"), module)
    launcher: Launcher = module[name]
    return launcher
