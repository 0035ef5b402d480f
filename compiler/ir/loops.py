"""The loop IR: kernels as loops over stores of expressions.

    Kernel := name, loops: (Loop, ...), stores: (Store, ...), buffers: (Buffer, ...), symbols: (name, ...), origins
    Loop   := var in [0, extent)
    Store  := buffer[index] (= | +=) expr                       executed once per value of the loops that it mentions
    Expr   := Load(buffer, index) | Const(value, dtype) | Call(op, args, dtype) | Cast(expr, dtype)
            | Reduce(op, loops, body, dtype) | AsValue(index, dtype)

Meaning. `index` is a flat element offset from the buffer's `data_ptr` (strides and storage offset are folded in).
An expression is a pure function of the loop variables free in it: `Reduce` binds its own loops, so a row softmax is

    for i, j:  y[i*n + j] = exp(x[i*n + j] - max_k x[i*n + k]) / sum_k exp(x[i*n + k] - max_l x[i*n + l])

and emission hoists each `Reduce` to the outermost loop at which its free variables are bound, shares equal
subexpressions, and merges reductions over equal extents into one loop. A store that does not mention an inner loop's
variable belongs to the outer level (`mean[i] = ...` beside `y[i, j] = ...`). Every access is in range by
construction: a load in the arm of a `where` has its index clamped by `Min`/`Max`.

Arithmetic. A `Call` computes in its dtype, its arguments already cast by the lowering; `Load` of bfloat16 or float16
has that dtype and is followed by a `Cast` to float32 before arithmetic. Loops of a kernel are independent of each
other: no store's buffer is loaded at another index in the same kernel.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

import torch

from compiler.ir.index import Index


@dataclass(frozen=True, slots=True)
class Buffer:
    """A kernel argument: a contiguous-addressed region of `numel` elements of `dtype`, by its name in the kernel."""

    name: str
    dtype: torch.dtype
    numel: Index


@dataclass(frozen=True, slots=True)
class Loop:
    """`var` runs over 0 <= var < extent."""

    var: str
    extent: Index


@dataclass(frozen=True, slots=True)
class Load:
    buffer: str
    index: Index
    dtype: torch.dtype


@dataclass(frozen=True, slots=True)
class Const:
    value: bool | int | float
    dtype: torch.dtype


@dataclass(frozen=True, slots=True)
class Call:
    """`op` names an entry of the tables in `codegen/expr.py` (add, mul, exp, where, lt, ...)."""

    op: str
    args: tuple[Expr, ...]
    dtype: torch.dtype


@dataclass(frozen=True, slots=True)
class Cast:
    expr: Expr
    dtype: torch.dtype


ReduceOp: TypeAlias = Literal["sum", "prod", "max", "min", "any", "all", "argmax", "argmin"]


@dataclass(frozen=True, slots=True)
class Reduce:
    """`op` over all points of `loops`. max/min propagate NaN; argmax/argmin give the first linear position (int64)."""

    op: ReduceOp
    loops: tuple[Loop, ...]
    body: Expr
    dtype: torch.dtype


@dataclass(frozen=True, slots=True)
class AsValue:
    """An index expression as a number of `dtype`."""

    index: Index
    dtype: torch.dtype


Expr: TypeAlias = Load | Const | Call | Cast | Reduce | AsValue


@dataclass(frozen=True, slots=True)
class Store:
    buffer: str
    index: Index
    expr: Expr
    mode: Literal["write", "accumulate"]


@dataclass(frozen=True, slots=True)
class Kernel:
    """`buffers` are the arguments in order (read before written is not implied); `symbols` the int64 size arguments.

    `origins` are the graph nodes that it computes, for the reader of generated code.
    """

    name: str
    loops: tuple[Loop, ...]
    stores: tuple[Store, ...]
    buffers: tuple[Buffer, ...]
    symbols: tuple[str, ...]
    origins: tuple[str, ...]
