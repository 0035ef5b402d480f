"""For which devices kernels are generated here."""

from __future__ import annotations

import functools
from collections.abc import Mapping

from assay.compiler.codegen.triton.programs import takes
from assay.compiler.ir.tensors.devices import has_triton
from assay.compiler.journal import say_once
from assay.compiler.ops.lower import ON_CPU, Target
from assay.compiler.options import Options
from assay.compiler.toolchain.build import find_compiler


def targets_of(options: Options) -> Mapping[str, Target]:
    """The types of devices that kernels are made for here, each with what it takes."""
    if target_of(options) == "aten":
        return {}
    return {**ON_CPU, "cuda": takes} if has_triton() else ON_CPU


@functools.cache
def target_of(options: Options) -> str:
    """The target that this machine serves: with no C++ compiler all operators are calls to ATen, and that is said."""
    if options.target == "cpp" and find_compiler(options.cxx) is None:
        wanted = options.cxx or "g++, c++ or clang++"
        say_once(f"assay: no C++ compiler runs here ({wanted}): all operators are calls to ATen; set ASSAY_CXX to one")
        return "aten"
    return options.target
