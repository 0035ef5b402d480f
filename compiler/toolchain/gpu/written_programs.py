"""Triton programs that are written by hand: from a module's text to callables of a grid, tensors and numbers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from assay.compiler.codegen.triton.expressions import memory_type
from assay.compiler.codegen.triton.programs import HEADER
from assay.compiler.codegen.triton.tile_functions import MOST, Tile, TileFunction, takes, tile_function
from assay.compiler.errors import BuildError
from assay.compiler.ir.loops.kernel import Kernel
from assay.compiler.machine import number
from assay.compiler.toolchain.gpu.triton_build import NotBuilt, Wanted
from assay.compiler.toolchain.gpu.triton_launch import (
    MATH,
    OTHER_WARPS,
    DeviceCode,
    capability_of,
    code_on_device,
    path_of,
)
from assay.compiler.toolchain.gpu.triton_workers import workers

__all__ = ["MOST", "Tile", "TileFunction"]
Run = Callable[[int, Sequence[torch.Tensor], Sequence[int]], None]
"""Launches so many instances on tensors and numbers, on the current stream of their device."""


@dataclass(frozen=True, slots=True)
class Written:
    """A function of a module's text, which `HEADER` goes before.

    It says the types of its arguments as Triton names them, tensors first, and the places of numbers that are multiples
    of 16. It says the warps of an instance, and how many steps of a loop have their loads under way. It also says
    whether all addresses are multiples of 16, and whether a failed check stops the device.
    """

    text: str
    function: str
    kinds: tuple[str, ...]
    multiples: tuple[int, ...]
    warps: int
    stages: int
    is_aligned: bool
    has_checks: bool


def load_written(programs: Sequence[Written], device: torch.device, cache: str) -> list[Run] | None:
    """What launches each of them on a GPU. They are compiled side by side. None if one of them takes more shared memory
    than there is.

    Raises: BuildError where Triton fails.
    """
    index = device.index if device.index is not None else torch.cuda.current_device()
    wanted = [_wanted(program, device, cache) for program in programs]
    codes = list[DeviceCode]()
    for each, answer in zip(wanted, workers().build_all(wanted), strict=True):
        if isinstance(answer, NotBuilt):
            raise BuildError(f"assay: Triton failed on the program {each.function} with any number of warps: {answer}")
        if answer.shared > number("shared_memory_bytes"):
            return None
        codes.append(code_on_device(each, answer, index))
    return [_launcher(code, index) for code in codes]


def module_text(text: str) -> str:
    """The module of a program's text."""
    return f"{HEADER.format(math=MATH)}\n\n{text}"


def _wanted(program: Written, device: torch.device, cache: str) -> Wanted:
    path, warps = path_of(module_text(program.text), cache), tuple(dict.fromkeys((program.warps, *OTHER_WARPS)))
    return Wanted(
        path, program.function, program.kinds, program.is_aligned, warps, capability_of(device), program.has_checks,
        program.stages, program.multiples,
    )  # fmt: skip


def _launcher(code: DeviceCode, device: int) -> Run:
    launch, function, more = code.named
    stream_of = torch._C._cuda_getCurrentRawStream

    def run(grid: int, tensors: Sequence[torch.Tensor], numbers: Sequence[int]) -> None:
        if torch._C._cuda_getDevice() != device:
            with torch.cuda.device(device):
                return run(grid, tensors, numbers)
        values = (*(each.data_ptr() for each in tensors), *numbers)
        if code.threads:
            launch(function, grid, code.threads, code.shared, device, stream_of(device), *values)
        else:
            launch(grid, 1, 1, stream_of(device), function, more[0], None, None, None, *values)
        return None

    return run


def is_written(kernel: Kernel) -> bool:
    """Whether Triton has text for all that a kernel over a tile computes."""
    return takes(kernel)


def inner_function(kernel: Kernel, tile: Tile, is_wide: bool) -> TileFunction:
    """A kernel over a tile as a function of a module's text."""
    return tile_function(kernel, tile, is_wide)


def element_kind(dtype: torch.dtype) -> str:
    """The type of the address of elements, as Triton names it."""
    return f"*{memory_type(dtype)}"
