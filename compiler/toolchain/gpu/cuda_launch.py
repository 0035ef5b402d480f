"""Machine code and launches on a GPU by the driver itself: a call of a few integers, for code of any signature.

Triton's own launcher is C for each signature, compiled when it is first met, behind a Python function that looks for
memory to hand over. This one (`compiler/codegen/cuda_launch.h`) is compiled once a machine and looks for nothing.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import cast

from assay.compiler.errors import BuildError
from assay.compiler.options import Options
from assay.compiler.toolchain.launch import load_text

DRIVER = "libcuda.so.1"
SHARED_BYTES = 8
"""The attribute of a function that says how much shared memory its launches may ask for."""
ALWAYS_SHARED = 48 << 10
"""What they may ask for without it."""
MOST_VALUES = 250
"""The arguments of a function, at most."""


@functools.cache
def launch_cuda(library: str = DRIVER) -> Callable[..., None] | None:
    """`(function, grid, threads, shared, device, stream, *values)`: a function of the device's with so many instances
    of so many threads, which have so many bytes of shared memory, on a stream. Values are addresses and sizes.

    None where there is no C++ compiler. What it returns raises RuntimeError for an error of the driver, and where there
    is none.
    """
    sizes = f'constexpr const char* LIBRARY = "{library}";\nconstexpr i64 MOST_VALUES = {MOST_VALUES};\n'
    try:
        (launch,) = load_text(
            sizes + Path(__file__).with_name("cuda_launch.h").read_text(),
            [],
            Options.of(None, None),
            own=["launch_cuda"],
        )
    except BuildError:
        return None
    return cast(Callable[..., None], launch)


def load_cuda(code: bytes, name: str, shared: int, device: int, library: str = DRIVER) -> int:
    """The function `name` of machine code on a device, whose launches have so many bytes of shared memory. It stays
    loaded for as long as the process runs.

    Raises: RuntimeError for an error of the driver, and where there is none.
    """
    driver = _driver(library)
    module, function = ctypes.c_void_p(), ctypes.c_void_p()
    with _context_of(device, driver):
        _check(driver, driver.cuModuleLoadData(ctypes.byref(module), code))
        _check(driver, driver.cuModuleGetFunction(ctypes.byref(function), module, name.encode()))
        if shared > ALWAYS_SHARED:
            _check(driver, driver.cuFuncSetAttribute(function, SHARED_BYTES, shared))
    return int(function.value or 0)


@contextlib.contextmanager
def _context_of(device: int, driver: ctypes.CDLL) -> Iterator[None]:
    """The device's own context, which torch works in, is that of this thread for a while."""
    context = ctypes.c_void_p()
    _check(driver, driver.cuInit(0))
    _check(driver, driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), device))
    _check(driver, driver.cuCtxPushCurrent_v2(context))
    try:
        yield
    finally:
        _check(driver, driver.cuCtxPopCurrent_v2(ctypes.byref(context)))


def _check(driver: ctypes.CDLL, status: int) -> None:
    if status:
        name = ctypes.c_char_p(b"unknown error")
        driver.cuGetErrorString(status, ctypes.byref(name))
        raise RuntimeError(f"CUDA error in loading a kernel: {(name.value or b'').decode()} ({status})")


@functools.cache
def _driver(library: str) -> ctypes.CDLL:
    try:
        return ctypes.CDLL(library)
    except OSError as error:
        raise RuntimeError(f"the driver of CUDA is not there ({library})") from error
