"""Short constructors for hand-written loop IR, and a run of kernels on torch tensors."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Sequence

import torch

from assay.compiler.ir.loops.index import Index, Int, Symbol, as_index
from assay.compiler.ir.loops.kernel import Buffer, Call, Cast, Const, Expr, Kernel, Load, Loop, Reduce, ReduceOp, Store
from assay.compiler.options import Options
from assay.compiler.toolchain.load import load_kernels

F32 = torch.float32
i, j, k, r, s, n = (Symbol(name) for name in "ijkrsn")

_numbers = itertools.count()


def load(name: str, index: Index | int, dtype: torch.dtype = F32) -> Load:
    return Load(name, as_index(index), dtype)


def call(op: str, *args: Expr, dtype: torch.dtype | None = None) -> Call:
    return Call(op, args, dtype or args[-1].dtype)


def const(value: bool | int | float, dtype: torch.dtype = F32) -> Const:
    return Const(value, dtype)


def widen(expr: Expr) -> Cast:
    return Cast(expr, F32)


def loops(**extents: Index | int) -> tuple[Loop, ...]:
    return tuple(Loop(name, as_index(extent)) for name, extent in extents.items())


def reduce(op: ReduceOp, body: Expr, dtype: torch.dtype | None = None, **extents: Index | int) -> Reduce:
    return Reduce(op, loops(**extents), body, dtype or body.dtype)


def store(name: str, index: Index | int, expr: Expr) -> Store:
    return Store(name, as_index(index), expr, "write")


def accumulate(name: str, index: Index | int, expr: Expr) -> Store:
    return Store(name, as_index(index), expr, "accumulate")


def buffer(name: str, tensor: torch.Tensor) -> Buffer:
    return Buffer(name, tensor.dtype, Int(tensor.numel()))


def kernel(
    over: tuple[Loop, ...], stores: Sequence[Store], buffers: Sequence[Buffer], symbols: Sequence[str] = ()
) -> Kernel:
    return Kernel(f"kernel_{next(_numbers)}", over, tuple(stores), tuple(buffers), tuple(symbols), ("hand-written",))


@dataclasses.dataclass(frozen=True)
class Run:
    """A kernel, the tensors of its buffers, and what each stored one must hold after the call."""

    kernel: Kernel
    tensors: dict[str, torch.Tensor]
    expected: dict[str, torch.Tensor]
    symbols: tuple[int, ...] = ()


def make_run(
    over: tuple[Loop, ...],
    stores: Sequence[Store],
    tensors: dict[str, torch.Tensor],
    expected: dict[str, torch.Tensor],
    symbols: dict[str, int] | None = None,
) -> Run:
    """Outputs that `tensors` does not give are made, full of a value that no result has, in the expected dtype."""
    outputs = {name: torch.full_like(value, 77) for name, value in expected.items() if name not in tensors}
    present = {**tensors, **outputs}
    given = symbols or {}
    made = kernel(over, stores, [buffer(name, tensor) for name, tensor in present.items()], tuple(given))
    return Run(made, present, expected, tuple(given.values()))


def options(cache: object) -> Options:
    return Options.of({"cache": str(cache)}, None)


def launch(function: Callable[..., None], run: Run) -> dict[str, torch.Tensor]:
    """The tensors of the stored buffers after one call."""
    tensors = {name: tensor.clone(memory_format=torch.preserve_format) for name, tensor in run.tensors.items()}
    function(*(tensor.data_ptr() for tensor in tensors.values()), *run.symbols)
    return {name: tensors[name] for name in run.expected}


def load_runs(runs: Sequence[Run], cache: object) -> dict[str, Callable[..., None]]:
    return load_kernels([run.kernel for run in runs], options(cache))
