"""Kernels as text, each in the language of its device."""

from __future__ import annotations

from assay.compiler.codegen.cpp.kernel import emit_kernel
from assay.compiler.codegen.triton.programs import emit_programs
from assay.compiler.ir.loops.kernel import Kernel


def source_of(kernel: Kernel) -> str:
    """The text of a kernel in the language of its device."""
    if kernel.device.type == "cpu":
        return emit_kernel(kernel)
    return "\n\n".join(program.text for program in emit_programs(kernel))
