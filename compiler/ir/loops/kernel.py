"""The loop IR: kernels as loops over stores of expressions.

    Kernel := name, loops: (Loop, ...), stores: (Store, ...), buffers: (Buffer, ...), symbols: (name, ...), origins
              [, tiles: by which tiles a GPU computes a product of matrices]
    Loop   := var in [0, extent)
    Store  := buffer[index] (= | += | *= | max= | min=) expr    once per value of the loops that it mentions
    Expr   := Load(buffer, index) | Const(value, dtype) | Call(op, args, dtype) | Cast(expr, dtype)
            | Reduce(op, loops, body, dtype) | AsValue(index, dtype) | Element(tensor, at), before layout only
            | Bind(loop, position, body, dtype) | Check(expr, condition, failure, dtype)
            | Scan(op, loop, last, body, dtype)

    Schedule := inputs, symbols: {name: Source}, steps: (Step, ...), outputs, constants, counts
    Source   := input [. size | stride (dim) | . offset]
    Step     := Allocate | Reuse | Launch | CallAten | Reinterpret | Expect | Free

Meaning. `index` is a flat element offset from the buffer's `data_ptr` (strides and storage offset are folded in).
An expression is a pure function of the loop variables free in it: `Reduce` binds its own loops, so a row softmax is

    for i, j:  y[i*n + j] = exp(x[i*n + j] - max_k x[i*n + k]) / sum_k exp(x[i*n + k] - max_l x[i*n + l])

and emission hoists each `Reduce` to the outermost loop at which its free variables are bound, shares equal
subexpressions, and merges reductions over equal extents into one loop. A store that does not mention an inner loop's
variable belongs to the outer level (`mean[i] = ...` beside `y[i, j] = ...`). Every access is in range by
construction: a load in the arm of a `where` has its index clamped by `Min`/`Max`.

An index that is data is bound first. `Bind` gives its variable the number that an expression has, or 0 where that is
out of range. So no access can be wrong whatever the data holds. In indices it is a variable like any other. Row `t[i]`
of a table is

    for i, j:  y[i*n + j] = bind v in m = t[i]: w[v*n + j]

and `Check` makes the launch raise where eager would: at a position that is out of range, at an integer divisor of 0.
A running total is a `Scan`, a reduction up to and with `last`: one of the kernel's loops, which then runs in order and
carries the total along. A kernel with scans has no reductions.

A store whose expression is a `Bind` may have the variable in its index: it is scattered. It runs for every value of
all loops, in their order as far as iterations may meet in one element:

    for i, j:  y[v*n + j] += bind v in m = t[i]: x[i*n + j]

Arithmetic. A `Call` computes in its dtype, its arguments already cast by the lowering; `Load` of bfloat16 or float16
has that dtype and is followed by a `Cast` to float32 before arithmetic. Loops of a kernel are independent of each
other: no store's buffer is loaded at another index in the same kernel.

Expressions are interned: equal means identical, so a value used twice is one object and sharing is by identity. Bound
variables are named by the nesting height of their `Reduce` (`r0_0` innermost), so equal reductions are identical too.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import torch

from assay.compiler.ir.loops.index import Index
from assay.compiler.ir.loops.intern import Shared

CPU = torch.device("cpu")


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


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class Load(Shared):
    buffer: str
    index: Index
    dtype: torch.dtype


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class Const(Shared):
    value: bool | int | float
    dtype: torch.dtype


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class Call(Shared):
    """`op` names an entry of the tables in `codegen/cpp/expressions.py` (add, mul, exp, where, lt, ...)."""

    op: str
    args: tuple[Expr, ...]
    dtype: torch.dtype


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class Cast(Shared):
    expr: Expr
    dtype: torch.dtype


ReduceOp: TypeAlias = Literal["sum", "prod", "max", "min", "any", "all", "argmax", "argmin"]


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class Reduce(Shared):
    """`op` over all points of `loops`. max/min propagate NaN; argmax/argmin give the first linear position (int64)."""

    op: ReduceOp
    loops: tuple[Loop, ...]
    body: Expr
    dtype: torch.dtype


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class AsValue(Shared):
    """An index expression as a number of `dtype`."""

    index: Index
    dtype: torch.dtype


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class Element(Shared):
    """`tensor[at]` by coordinates, where layout is not decided yet. No kernel contains one."""

    tensor: str
    at: tuple[Index, ...]
    dtype: torch.dtype


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class Bind(Shared):
    """`body` where `loop.var` has one value: `position` (int64), or 0 where that is not in 0 <= value < loop.extent."""

    loop: Loop
    position: Expr
    body: Expr
    dtype: torch.dtype


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class Check(Shared):
    """`expr`; where `condition` (bool) does not hold, the launch raises `FAILURES[failure]` once it is done."""

    expr: Expr
    condition: Expr
    failure: str
    dtype: torch.dtype


ScanOp: TypeAlias = Literal["sum", "prod", "max", "min", "logaddexp"]


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class Scan(Shared):
    """`op` over the points 0 <= loop.var <= last, in order. max/min propagate NaN."""

    op: ScanOp
    loop: Loop
    last: Index
    body: Expr
    dtype: torch.dtype


Expr: TypeAlias = Load | Const | Call | Cast | Reduce | AsValue | Element | Bind | Check | Scan


Mode: TypeAlias = Literal["write", "accumulate", "multiply", "maximum", "minimum"]
"""What becomes of the element that is there."""


@dataclass(frozen=True, slots=True)
class Store:
    buffer: str
    index: Index
    expr: Expr
    mode: Mode


@dataclass(frozen=True, slots=True)
class Tiles:
    """How a GPU computes a product of matrices: `rows` by `columns` of the result in an instance of so many `warps`,
    summed over `depth` terms at a time, of which those of `stages` steps are under way at once."""

    rows: int
    columns: int
    depth: int
    warps: int
    stages: int


@dataclass(frozen=True, slots=True)
class Kernel:
    """`buffers` are the arguments in order (read before written is not implied); `symbols` the int64 size arguments.

    `origins` are the graph nodes that it computes, for the reader of generated code. All buffers are on `device`.
    With `tiles` a GPU computes the one sum of products in it by its tensor cores (`codegen/triton/products.py`).
    """

    name: str
    loops: tuple[Loop, ...]
    stores: tuple[Store, ...]
    buffers: tuple[Buffer, ...]
    symbols: tuple[str, ...]
    origins: tuple[str, ...]
    device: torch.device = CPU
    tiles: Tiles | None = None


# ---- schedules: what the generated host function does, step by step --------------------------------------------------


@dataclass(frozen=True, slots=True)
class Ref:
    """A value of the host function, by name, inside the arguments of a call or the outputs."""

    name: str


@dataclass(frozen=True, slots=True)
class Allocate:
    """`name = empty(size, stride)`."""

    name: str
    size: tuple[Index, ...]
    stride: tuple[Index, ...]
    dtype: torch.dtype
    device: torch.device


@dataclass(frozen=True, slots=True)
class Reuse:
    """`name = of`: the same memory under a new name. Either `of` is dead and a kernel writes each element where it
    reads it, or scatters into it; or the calls before have written `of`, and who reads `name` reads what they wrote."""

    name: str
    of: str


@dataclass(frozen=True, slots=True)
class Launch:
    """Runs a kernel; `arguments` are tensors in the order of `kernel.buffers`, `sizes` of `kernel.symbols`.

    `offsets` says how many elements behind the first of each argument its buffer begins; empty where all do there.
    """

    kernel: Kernel
    arguments: tuple[str, ...]
    sizes: tuple[Index, ...]
    origins: tuple[str, ...]
    offsets: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class CallAten:
    """`name = target(*args, **kwargs)`; arguments hold `Ref` for values and `Index` for sizes, else constants."""

    name: str
    target: Any
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Reinterpret:
    """`name` = the elements of `base` from `offset` (relative to its first) with another size and stride."""

    name: str
    base: str
    size: tuple[Index, ...]
    stride: tuple[Index, ...]
    offset: Index


@dataclass(frozen=True, slots=True)
class Expect:
    """Makes sure that a result of ATen has the strides and the dtype that kernels and views were made for.

    Its numbers also have to be those in memory, with none that are yet to be conjugated. A result that is otherwise is
    copied. One of another size is an error.
    """

    name: str
    size: tuple[Index, ...]
    stride: tuple[Index, ...]
    dtype: torch.dtype


@dataclass(frozen=True, slots=True)
class Free:
    """Drops the last references to values."""

    names: tuple[str, ...]


Step: TypeAlias = Allocate | Reuse | Launch | CallAten | Reinterpret | Expect | Free


@dataclass(frozen=True, slots=True)
class Counts:
    """`compute`: nodes apart from views, contractions, allocations and sizes; `generated`: those in kernels;
    `fallbacks`: the others, by ATen name."""

    compute: int
    generated: int
    fallbacks: Mapping[str, int]


class Read(enum.IntEnum):
    """What is read of an input."""

    itself = 0
    size = 1
    stride = 2
    offset = 3


class Part(enum.Enum):
    """What a symbol is of a number `n` that is read; all of them are at least 0, as index algebra takes symbols to be.

    n >= 0: n = whole        n < 0: n = -1 - complement        of either sign: n = above - below
    """

    whole = "{n}"
    complement = "~{n}"
    above = "max({n}, 0)"
    below = "max(-{n}, 0)"  # of the least integer that 64 bits hold it is one more than they hold


@dataclass(frozen=True, slots=True)
class Source:
    """Where a call reads the number behind a symbol: an integer `input` itself, or a size, a stride or the offset of a
    tensor. Earlier members of `Read` are preferred."""

    input: str
    read: Read
    dim: int = 0
    part: Part = Part.whole


@dataclass(frozen=True, slots=True)
class Schedule:
    """`symbols` says where the number behind each comes from.

    `outputs` holds `Ref`, `Index`, or a constant such as None. `constants` are the objects that the graph carries.
    """

    inputs: tuple[str, ...]
    symbols: Mapping[str, Source]
    steps: tuple[Step, ...]
    outputs: tuple[Any, ...]
    constants: Mapping[str, Any]
    counts: Counts

    @property
    def kernels(self) -> tuple[Kernel, ...]:
        """The distinct kernels, in order of first launch."""
        return tuple({id(s.kernel): s.kernel for s in self.steps if isinstance(s, Launch)}.values())


def references(argument: object) -> Iterator[str]:
    """The names of the values in an argument of a call."""
    if isinstance(argument, Ref):
        yield argument.name
    elif isinstance(argument, list | tuple):
        for item in argument:
            yield from references(item)
    elif isinstance(argument, dict):
        for item in argument.values():
            yield from references(item)
    elif isinstance(argument, slice):
        yield from references((argument.start, argument.stop, argument.step))
