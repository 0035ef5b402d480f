"""Kernels as Python callables, each by what its device's are made of: C++ on the CPU, Triton on a GPU."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from assay.compiler.ir.loops.kernel import Kernel, Tiles
from assay.compiler.ir.loops.text import parse
from assay.compiler.journal import Journal
from assay.compiler.options import Options
from assay.compiler.schedule.products import Choose, Region
from assay.compiler.toolchain import launch
from assay.compiler.toolchain.gpu import compiled_kernels
from assay.compiler.toolchain.gpu.compiled_kernels import Launched, Launcher
from assay.compiler.toolchain.launch import Loaded, load_cpp

LoadKernels = Callable[[Sequence[Kernel], Options], Mapping[str, Callable[..., None]]]
"""Kernels as callables by their names."""


def load_kernels(kernels: Sequence[Kernel], options: Options) -> Loaded:
    """For each kernel, by its name, a callable of one integer a buffer (its address), then one a symbol: of C++ on the
    CPU, of Triton on a GPU.

    Raises: BuildError where there is no compiler, or it failed; Unsupported for what the target has no text for.
    """
    on_gpu = [kernel for kernel in kernels if kernel.device.type == "cuda"]
    if not on_gpu:
        return load_cpp(kernels, options)
    from assay.compiler.toolchain.gpu.triton_launch import load_triton  # an optional toolchain

    rest = [kernel for kernel in kernels if kernel.device.type != "cuda"]
    return load_cpp(rest, options).beside(load_triton(on_gpu, options))


def measured_choice(options: Options, journal: Journal) -> Choose | None:
    """How products of matrices are chosen by measuring; None where the options ask for no measuring."""
    if not options.tune or options.numerics == "exact":
        return None
    return functools.partial(choose_products, options=options, journal=journal)


def choose_products(regions: Sequence[Region], options: Options, journal: Journal) -> Sequence[Tiles | None]:
    """By which tiles of ours each product is computed, as measuring tells; None where the library computes it."""
    if not any(region.kernel.device.type == "cuda" for region in regions):
        return [None] * len(regions)
    from assay.compiler.toolchain.gpu.tune_products import choose  # an optional toolchain

    return choose(regions, options, journal, load_kernels)


def load_again(places: Mapping[str, Any], options: Options) -> Loaded | None:
    """Kernels that were loaded before, by their names, as `Loaded.places` has them; None where the cache holds one of
    them no more, or it is another machine's."""
    on_gpu = {name: place for name, place in places.items() if isinstance(place, Launched)}
    rest = launch.load_again({name: place for name, place in places.items() if name not in on_gpu}, options)
    more = compiled_kernels.load_again(on_gpu, options, lambda place: _Otherwise(place.kernel, options.cache))
    return None if rest is None or more is None else rest.beside(more)


class _Otherwise:
    """A kernel on a GPU for calls that its code was not compiled for: Triton compiles it when the first one comes."""

    def __init__(self, text: str, directory: str) -> None:
        self.text, self.directory = text, directory
        self.compiled: Launcher | None = None

    def __call__(self, *values: int) -> None:
        if self.compiled is None:
            from assay.compiler.toolchain.gpu.triton_launch import Variants  # an optional toolchain

            self.compiled = Variants(parse(self.text), self.directory).launch
        self.compiled(*values)
