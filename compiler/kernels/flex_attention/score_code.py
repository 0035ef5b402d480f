"""The program's functions in the C++ of attention: kernels over a tile of scores, and how they are called.

    change(is_full, scores, given, ...)     ->     part_change(scores, (const f32*)given[0], ..., given[3], ...)

What the functions read comes as one list of integers, `given`: the addresses of tensors, and sizes and strides.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from assay.compiler.ir.loops.failures import FAILURES, failures_of
from assay.compiler.ir.loops.kernel import Kernel, Part, Read, Source
from assay.compiler.toolchain.launch import inner_text, memory_type_of

KEYS = 256
"""Keys whose scores with a tile of rows are made at once. These fit in the second cache."""
WIDEST = 16
"""The most elements that a vector holds."""
BITS = 8
"""How many failures one kernel may find."""

ELEMENTS: dict[torch.dtype, tuple[str, str, str]] = {
    torch.float32: ("f32", "(x)", "(x)"),
    torch.bfloat16: ("bf16", "m::from_bf16(x)", "m::to_bf16(x)"),
    torch.float16: ("f16", "m::from_f16(x)", "m::to_f16(x)"),
}
"""The type of an element in memory, and how it is widened to float32 and narrowed again."""

_HEAD = """extern "C" int omp_get_thread_num();
extern "C" PyObject* PyLong_FromUnsignedLongLong(unsigned long long);
typedef {element} E;
#define WIDEN(x) {widen}
#define NARROW(x) {narrow}
constexpr i64 DEPTH = {depth}, OUT_DEPTH = {out_depth}, KEYS = {keys};
INLINE i64 thread_number() {{ return omp_get_thread_num(); }}
"""

_FUNCTION = """INLINE u64 {name}(bool is_full, {parameters}, const i64* given, i64 batch, i64 head, i64 first,
    i64 from, i64 rows, i64 keys) {{
  return is_full ? {full} : {part};
}}
"""
PLACE = ("batch", "head", "first", "from", "rows", "keys")
"""The first symbols of a kernel: the place of the tile, and its size."""


@dataclass(frozen=True, slots=True)
class ScoreKernel:
    """A kernel over a tile of scores that are `KEYS` apart. Its buffers are those of the tile, then those at the places
    `tensors` of what is given. Its symbols are `PLACE`, then the numbers that `sources` tell, each with the place of
    what it is read of."""

    kernel: Kernel
    tensors: tuple[int, ...]
    sources: tuple[tuple[int, Source], ...]

    @property
    def count(self) -> int:
        """How many integers it is given."""
        return len(self.tensors) + len(self.sources)

    def numbers(self, given: Sequence[Tensor | int]) -> list[int]:
        """What it reads, as integers."""
        addresses = [given[place].data_ptr() for place in self.tensors]  # type: ignore[union-attr]
        return addresses + [_read(given[place], source) for place, source in self.sources]

    def call(self, tile: Sequence[str], start: int) -> str:
        """The call of it where its integers begin at `start` of what is given. Its value is what its checks found."""
        first = start + len(self.tensors)
        types = (memory_type_of(buffer.dtype) for buffer in self.kernel.buffers[len(tile) :])
        buffers = [f"(const {kind}*)given[{start + n}]" for n, kind in enumerate(types)]
        numbers = [f"given[{first + n}]" for n in range(len(self.sources))]
        call = f"{self.kernel.name}({', '.join([*tile, *buffers, *PLACE, *numbers])})"
        return call if failures_of(self.kernel) else f"({call}, 0)"


@dataclass(frozen=True, slots=True)
class ScoreFunction:
    """A function of a tile's scores: `part` in a block that the mask shows partly, `full` in one that it shows whole.
    None does nothing. `tile` are its parameters for the tile, as C++ has them."""

    name: str
    tile: tuple[str, ...]
    part: ScoreKernel | None
    full: ScoreKernel | None

    @property
    def kernels(self) -> tuple[ScoreKernel, ...]:
        return tuple(each for each in (self.part, self.full) if each is not None)


def head_of(dtype: torch.dtype, depth: int, out_depth: int) -> str:
    """What the C++ of attention begins with: the types and sizes that it is compiled for."""
    element, widen, narrow = ELEMENTS[dtype]
    return _HEAD.format(element=element, widen=widen, narrow=narrow, depth=depth, out_depth=out_depth, keys=KEYS)


def text_of(functions: Sequence[ScoreFunction]) -> str:
    """The functions as C++, after the kernels that they call."""
    texts, start, bit = dict[str, None](), 0, 0
    for function in functions:
        texts |= dict.fromkeys(inner_text(each.kernel) for each in function.kernels)
        calls = list[str]()
        for each in (function.part, function.full):
            call = "0" if each is None else each.call([tile.rpartition(" ")[2] for tile in function.tile], start)
            calls.append(f"(u64)({call}) << {bit}" if each is not None else "0")
            start, bit = start + (0 if each is None else each.count), bit + BITS
        part, full = calls
        texts[_FUNCTION.format(name=function.name, parameters=", ".join(function.tile), full=full, part=part)] = None
    return "\n".join(texts)


def numbers_of(functions: Sequence[ScoreFunction], given: Sequence[Tensor | int]) -> list[int]:
    """What the functions read, as integers in the order in which the C++ takes them."""
    return [number for function in functions for each in function.kernels for number in each.numbers(given)]


def raise_failure(functions: Sequence[ScoreFunction], failed: int) -> None:
    """Raises: the first of the failures that the functions' checks have found, as eager does."""
    for bit, name in _failures(functions):
        if failed >> bit & 1:
            error, message = FAILURES[name]
            raise error(message)


def _failures(functions: Sequence[ScoreFunction]) -> Iterator[tuple[int, str]]:
    pairs = [each for function in functions for each in (function.part, function.full)]
    for place, each in enumerate(pairs):
        for bit, name in enumerate(() if each is None else failures_of(each.kernel)):
            yield place * BITS + bit, name


def _read(value: Tensor | int, source: Source) -> int:
    """A number of what a function is given."""
    if isinstance(value, Tensor):
        return value.size(source.dim) if source.read is Read.size else value.stride(source.dim)
    parts = {Part.whole: value, Part.complement: ~value, Part.above: max(value, 0), Part.below: max(-value, 0)}
    return parts[source.part]


@dataclass(frozen=True, slots=True)
class BlockMask:
    """The blocks of keys that each block of rows reads: `counts` of them, at `indices`. In those of `part` the mask
    function says what is hidden; in those of `full` nothing is."""

    part: tuple[Tensor, Tensor]
    full: tuple[Tensor, Tensor] | None
    rows: int
    keys: int

    def lists(self) -> tuple[Tensor | None, ...]:
        """The counts and indices of both, without gaps. Raises: RuntimeError where counts are for other blocks."""
        found: list[Tensor | None] = []
        for counts, indices in (self.part, self.full or (None, None)):
            if counts is not None and indices is not None and counts.shape != indices.shape[:3]:
                raise RuntimeError("a block mask counts other blocks than it lists")
            found += [each if each is None else each.contiguous() for each in (counts, indices)]
        return tuple(found)


def shapes_of(lists: Sequence[Tensor | None]) -> list[int]:
    """For both lists of blocks: batches, heads, blocks of rows, and the most blocks of keys that one of them reads."""
    return [size for each in lists[1::2] for size in ((1, 1, 0, 0) if each is None else each.shape)]


def addresses_of(tensors: Sequence[Tensor | None]) -> list[int]:
    """Where tensors are in memory; 0 for None."""
    return [0 if each is None else each.data_ptr() for each in tensors]


def bits_of(x: float) -> int:
    """A float32 as an integer."""
    return int(struct.unpack("<i", struct.pack("<f", x))[0])


def round_up(count: int, to: int) -> int:
    return -(-count // to) * to
