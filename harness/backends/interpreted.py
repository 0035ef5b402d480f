"""Backend `assay-triton`: our compiler, with every kernel of the CPU as Triton programs that Triton interprets.

It needs TRITON_INTERPRET=1 in the environment before Triton is imported, and is slow: for small sizes. A kernel that
Triton has no text for runs in C++. Where eager raises for a position out of range, the interpreter's own error comes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
import triton
import triton.language as tl
from torch import fx
from triton.runtime.interpreter import InterpreterBuilder, TensorHandle

from assay.compiler.codegen.triton.programs import emit_programs
from assay.compiler.codegen.triton.tile_sizes import USUAL, Change
from assay.compiler.entry.dynamo import compile_graph
from assay.compiler.errors import Unsupported
from assay.compiler.ir.loops.index import evaluate
from assay.compiler.ir.loops.kernel import Kernel
from assay.compiler.options import Options
from assay.compiler.toolchain.gpu.triton_launch import module_of
from assay.compiler.toolchain.launch import load_cpp
from assay.reference.loops import tensor_at


def assay_triton(
    gm: fx.GraphModule,
    example_inputs: Sequence[object],
    *,
    options: Mapping[str, object] | None = None,
    mode: str | None = None,
) -> Callable[..., Any]:
    """As the backend `assay`, interpreted.

    Raises: RuntimeError where Triton does not interpret.
    """
    if not triton.knobs.runtime.interpret:
        raise RuntimeError("assay-triton interprets Triton programs: set TRITON_INTERPRET=1")
    return compile_graph(gm, example_inputs, Options.of(options, mode), interpret_all)


def interpret_all(kernels: Sequence[Kernel], options: Options) -> dict[str, Callable[..., None]]:
    """For each kernel, by its name, a callable of addresses and sizes."""
    return {kernel.name: interpret(kernel, options) for kernel in kernels}


def interpret(kernel: Kernel, options: Options, is_by_row: bool = False, change: Change = USUAL) -> Callable[..., None]:
    """A kernel on the CPU as Triton programs; by C++ where Triton has no text for it, or the interpreter no atomic
    addition."""
    dtypes = {buffer.name: buffer.dtype for buffer in kernel.buffers}
    if any(store.mode == "accumulate" and dtypes[store.buffer] is torch.bfloat16 for store in kernel.stores):
        return load_cpp([kernel], options)[kernel.name]
    try:
        programs = emit_programs(kernel, is_by_row=is_by_row, change=change)
    except Unsupported:
        return load_cpp([kernel], options)[kernel.name]
    module = module_of(programs, options.cache)

    def run(*arguments: int) -> None:
        sizes = dict(zip(kernel.symbols, arguments[len(kernel.buffers) :], strict=True))
        pairs = zip(arguments, kernel.buffers, strict=False)
        given = in_one_storage([tensor_at(address, buffer, sizes) for address, buffer in pairs])
        room = {b.name: torch.empty(evaluate(b.numel, sizes), dtype=b.dtype) for p in programs for b in p.workspace}
        for program in programs:
            tensors = [*given, *(room[buffer.name] for buffer in program.workspace)]
            if grid := evaluate(program.grid, sizes):
                getattr(module, program.name)[(grid,)](*map(_in_memory, tensors), *sizes.values())

    return run


def in_one_storage(tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """The tensors, those that begin at one address over the memory of the largest: the interpreter takes all that do
    for the first of them."""
    largest: dict[int, torch.Tensor] = {}
    for tensor in tensors:
        known = largest.get(tensor.data_ptr())
        if known is None or tensor.nbytes > known.nbytes:
            largest[tensor.data_ptr()] = tensor
    whole = [largest[tensor.data_ptr()].view(torch.uint8) for tensor in tensors]
    return [
        tensor if not tensor.nbytes else memory[: tensor.nbytes].view(tensor.dtype)
        for tensor, memory in zip(tensors, whole, strict=True)
    ]


def round_to_bfloat16() -> None:
    """Has the interpreter round what becomes a bfloat16, as a GPU does: by itself it cuts off."""
    cast = InterpreterBuilder.cast_impl

    def rounded(builder: Any, value: Any, kind: Any) -> Any:
        if value.dtype.scalar != tl.float32 or kind.scalar != tl.bfloat16:
            return cast(builder, value, kind)
        halves = torch.from_numpy(np.array(value.data)).to(torch.bfloat16)
        return TensorHandle(halves.view(torch.uint16).numpy(), kind.scalar)

    InterpreterBuilder.cast_impl = rounded


def compute_as_a_gpu() -> None:
    """Has the interpreter prefer a number to NaN where it is told to, and know constants in bfloat16."""
    InterpreterBuilder.create_maxnumf = lambda self, a, b: self.binary_op(a, b, np.fmax)
    InterpreterBuilder.create_minnumf = lambda self, a, b: self.binary_op(a, b, np.fmin)
    InterpreterBuilder.get_bf16 = lambda self, value: TensorHandle(
        torch.tensor([float(value)], dtype=torch.bfloat16).view(torch.uint16).numpy(), tl.bfloat16
    )


def multiply_bfloat16() -> None:
    """Has the interpreter multiply matrices of bfloat16, which it takes for the integers that it holds them as."""
    dot = InterpreterBuilder.create_dot

    def widened(builder: Any, a: Any, b: Any, *more: Any) -> Any:
        return dot(builder, *(builder.cast_impl(operand, tl.float32) for operand in (a, b)), *more)

    def dot_of_halves(builder: Any, a: Any, b: Any, *more: Any) -> Any:
        return (widened if a.dtype.scalar == tl.bfloat16 else dot)(builder, a, b, *more)

    InterpreterBuilder.create_dot = dot_of_halves


if triton.knobs.runtime.interpret:
    round_to_bfloat16()
    multiply_bfloat16()
    compute_as_a_gpu()


def _in_memory(value: torch.Tensor) -> torch.Tensor:
    """A bool as the byte that it is in memory."""
    return value.view(torch.uint8) if value.dtype is torch.bool else value
