"""Attention on the CPU whose scores a program changes: one kernel that holds the program's functions.

    out, logs, tops = softmax(changed(scale q k^T)) v, the logarithm of each row's sum and its greatest score, to base 2

The C++ is `compiler/kernels/flex_attention.h`. It is compiled for each pair of functions, dtype and depth of heads, and
serves all sizes. Blocks of keys that the block mask leaves out are not read.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from assay.compiler.ir.loops.failures import FAILURES, failures_of
from assay.compiler.ir.loops.kernel import Kernel, Part, Read, Source
from assay.compiler.kernels.tiles import PANEL, ROWS, Tiled
from assay.compiler.machine import number
from assay.compiler.toolchain.launch import Function, inner_text, memory_type_of

WIDEST = 16
"""The most elements that a vector holds."""
BITS_OF_FULL = 32
"""Where the failures found in whole blocks begin."""
_NO_BLOCKS = (1, 1, 0, 0)
KEYS = 256
"""Keys whose scores with a tile of rows are made at once. These fit in the second cache."""

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

_CHANGE = """
INLINE u64 change(bool is_full, f32* scores, const i64* given, i64 batch, i64 head, i64 first, i64 from, i64 rows,
                  i64 keys) {
%s}
"""

_CALL = """const u64 failed = attend(
      Attention{(const E*)v[0], (const E*)v[1], (const E*)v[2], (E*)v[3], (f32*)v[4], (f32*)v[5],
                Strides{v[13], v[14], v[15], v[16]}, Strides{v[17], v[18], v[19], v[20]},
                Strides{v[21], v[22], v[23], v[24]}, Strides{v[25], v[26], v[27], v[28]},
                v[29], v[30], v[31], v[32], v[33], v[34], v[35], v[36], m::bits<f32>((i32)v[37]),
                Blocks{(const i32*)v[8], (const i32*)v[9], v[38], v[39], v[40], v[41]},
                Blocks{(const i32*)v[10], (const i32*)v[11], v[42], v[43], v[44], v[45]},
                v + 47, nullptr, nullptr, (i64*)v[7], v[46]},
      (f32*)v[6], v[12]);"""
_COUNT = 47
_ANSWER = "  return PyLong_FromUnsignedLongLong(failed);\n"


@dataclass(frozen=True, slots=True)
class ScoreKernel:
    """A kernel over a tile of scores that are `KEYS` apart. Its buffers are the scores, then those at the places
    `tensors` of what is given. Its symbols are the place and the size of the tile, then the numbers that `sources`
    tell, each with the place of what it is read of."""

    kernel: Kernel
    tensors: tuple[int, ...]
    sources: tuple[tuple[int, Source], ...]

    @property
    def count(self) -> int:
        """How many integers it is given."""
        return len(self.tensors) + len(self.sources)


@dataclass(frozen=True, slots=True)
class Changes:
    """What becomes of scores in a block that the mask shows partly, and in one that it shows whole; None: nothing."""

    part: ScoreKernel | None
    full: ScoreKernel | None

    @property
    def kernels(self) -> tuple[ScoreKernel, ...]:
        return tuple(each for each in (self.part, self.full) if each is not None)


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


class AttentionKernel:
    """The kernel for one pair of functions, one dtype, and the elements of a head of q and of v."""

    def __init__(self, changes: Changes, dtype: torch.dtype, depth: int, out_depth: int) -> None:
        self._changes = changes
        element, widen, narrow = ELEMENTS[dtype]
        head = _HEAD.format(element=element, widen=widen, narrow=narrow, depth=depth, out_depth=out_depth, keys=KEYS)
        texts = "\n".join(inner_text(each.kernel) for each in changes.kernels)
        function = Function("attend_changed", _COUNT + sum(each.count for each in changes.kernels), _CALL, _ANSWER)
        self._compiled = Tiled("flex_attention.h", [function], head + texts + _change(changes))
        self.prepare = self._compiled.prepare

    def __call__(
        self, heads: tuple[Tensor, Tensor, Tensor], out: Tensor, blocks: BlockMask, given: Sequence[Tensor | int],
        scale: float,
    ) -> tuple[Tensor, Tensor]:  # fmt: skip
        """Attention into `out`. Returns the logarithms and the greatest scores of its rows.

        Shapes: `q[b, h, s, d], k[b | 1, g, t, d], v[b | 1, g, t, e] -> [b, h, s, e], [b, h, s], [b, h, s]` for h a
        multiple of g; no size is 0.

        Raises: what a function's own lookups raise in eager, for the scores that are made.
        """
        q, k, v = heads
        (b, h, s, d), (kb, g, t, e) = q.shape, v.shape
        logs, tops = (torch.empty((b, h, s), dtype=torch.float32) for _ in range(2))
        key_block = min(blocks.keys, t)
        padded = -(-t // key_block) * _round_up(key_block, PANEL)
        work = b * h * s * t * (d + e) * 2
        threads = max(1, min(torch.get_num_threads(), work // number("attention_flops_per_thread")))
        wide = _round_up(e, WIDEST)
        room = kb * g * (padded * d + t * wide) + threads * ROWS * (d + KEYS + wide)
        scratch, odd = torch.empty(room, dtype=torch.float32), torch.empty(kb * g, dtype=torch.int64)
        lists = blocks.lists()
        failed = self._compiled.load()[0](
            *(tensor.data_ptr() for tensor in (q, k, v, out, logs, tops, scratch, odd)),
            *(0 if each is None else each.data_ptr() for each in lists), threads,
            *q.stride(), *k.stride(), *v.stride(), *out.stride(),
            b, h, s, t, kb, g, min(blocks.rows, s), key_block, _bits(scale),
            *(size for each in lists[1::2] for size in (_NO_BLOCKS if each is None else each.shape)),
            padded, *self._numbers(given),
        )  # fmt: skip
        if failed:
            self._raise(failed)  # type: ignore[arg-type]
        return logs, tops

    def _numbers(self, given: Sequence[Tensor | int]) -> list[int]:
        """What the functions read, as integers: for each kernel the addresses of its buffers and the values of its
        symbols."""
        found: list[int] = []
        for each in self._changes.kernels:
            found += [given[place].data_ptr() for place in each.tensors]  # type: ignore[union-attr]
            found += [_read(given[place], source) for place, source in each.sources]
        return found

    def _raise(self, failed: int) -> None:
        """Raises: the first of the failures that the functions' checks have found."""
        for each, bits in ((self._changes.part, failed), (self._changes.full, failed >> BITS_OF_FULL)):
            for bit, name in enumerate(() if each is None else failures_of(each.kernel)):
                if bits >> bit & 1:
                    error, message = FAILURES[name]
                    raise error(message)


def _round_up(count: int, to: int) -> int:
    return -(-count // to) * to


def _read(value: Tensor | int, source: Source) -> int:
    """A number of what a function is given."""
    if isinstance(value, Tensor):
        return value.size(source.dim) if source.read is Read.size else value.stride(source.dim)
    return {Part.whole: value, Part.complement: ~value, Part.above: max(value, 0), Part.below: max(-value, 0)}[
        source.part
    ]


def _change(changes: Changes) -> str:
    """The C++ function that changes a tile of scores by one kernel or the other."""
    start, calls = 0, list[str]()
    for each in (changes.part, changes.full):
        calls.append("0" if each is None else _call_of(each, start))
        start += 0 if each is None else each.count
    part, full = calls
    return _CHANGE % f"  if (is_full) return (u64)({full}) << {BITS_OF_FULL};\n  return {part};\n"


def _call_of(each: ScoreKernel, start: int) -> str:
    """The call of a kernel whose integers begin at `start` of what is given. One that checks nothing returns nothing."""
    first = start + len(each.tensors)
    types = (memory_type_of(buffer.dtype) for buffer in each.kernel.buffers[1:])
    buffers = [f"(const {kind}*)given[{start + n}]" for n, kind in enumerate(types)]
    numbers = [f"given[{first + n}]" for n in range(len(each.sources))]
    place = ["batch", "head", "first", "from", "rows", "keys"]
    call = f"{each.kernel.name}({', '.join(['scores', *buffers, *place, *numbers])})"
    return call if failures_of(each.kernel) else f"({call}, 0)"


@functools.lru_cache(maxsize=64)
def _bits(x: float) -> int:
    """A float32 as an integer."""
    return int(struct.unpack("<i", struct.pack("<f", x))[0])
