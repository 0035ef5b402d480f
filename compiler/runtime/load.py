"""Kernels as Python callables, each by what its device's are made of: C++ on the CPU, Triton on a GPU."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from compiler.ir.loops import Kernel
from compiler.options import Options
from compiler.runtime.launch import load_cpp


def load_kernels(kernels: Sequence[Kernel], options: Options) -> Mapping[str, Callable[..., None]]:
    """For each kernel, by its name, a callable of one integer a buffer (its address), then one a symbol: of C++ on the
    CPU, of Triton on a GPU.

    Raises: BuildError where there is no compiler, or it failed; Unsupported for what the target has no text for.
    """
    on_gpu = [kernel for kernel in kernels if kernel.device.type == "cuda"]
    if not on_gpu:
        return load_cpp(kernels, options)
    from compiler.runtime.triton_launch import load_triton  # an optional toolchain

    rest = [kernel for kernel in kernels if kernel.device.type != "cuda"]
    return {**load_cpp(rest, options), **load_triton(on_gpu, options)}
