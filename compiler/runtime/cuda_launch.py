"""A launch on a GPU by the driver itself: a call of a few integers, for machine code of any signature.

Triton's own launcher is C for each signature, compiled when it is first met, behind a Python function that looks for
memory to hand over. This one (`compiler/codegen/cuda_launch.h`) is compiled once a machine and looks for nothing.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

from compiler.codegen.prelude import part
from compiler.errors import BuildError
from compiler.options import Options
from compiler.runtime.launch import load_text

DRIVER = "libcuda.so.1"
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
        (launch,) = load_text(sizes + part("cuda_launch.h"), [], Options.of(None, None), own=["launch_cuda"])
    except BuildError:
        return None
    return launch  # type: ignore[return-value]
