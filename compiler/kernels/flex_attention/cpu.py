"""Attention on the CPU whose scores a program changes: one kernel that holds the program's functions.

    out, logs, tops = softmax(changed(scale q k^T)) v, the logarithm of each row's sum and its greatest score, to base 2

The C++ is `attend.h`. It is compiled for each pair of functions, dtype and depth of heads, and serves all sizes.
Blocks of keys that the block mask leaves out are not read.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from assay.compiler.kernels.flex_attention.score_code import (
    KEYS,
    WIDEST,
    BlockMask,
    ScoreFunction,
    addresses_of,
    bits_of,
    head_of,
    numbers_of,
    raise_failure,
    round_up,
    shapes_of,
    text_of,
)
from assay.compiler.kernels.tiles import PANEL, ROWS, Tiled
from assay.compiler.machine import number
from assay.compiler.toolchain.launch import Function

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


class AttentionKernel:
    """The kernel for one `change` of scores, one dtype, and the elements of a head of q and of v."""

    def __init__(self, change: ScoreFunction, dtype: torch.dtype, depth: int, out_depth: int) -> None:
        self._functions = (change,)
        function = Function("attend_changed", _COUNT + sum(each.count for each in change.kernels), _CALL, _ANSWER)
        head = head_of(dtype, depth, out_depth) + text_of(self._functions)
        self._compiled = Tiled("flex_attention/attend.h", [function], head, ["flex_attention/blocks.h"])
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
        padded = -(-t // key_block) * round_up(key_block, PANEL)
        work = b * h * s * t * (d + e) * 2
        threads = max(1, min(torch.get_num_threads(), work // number("attention_flops_per_thread")))
        wide = round_up(e, WIDEST)
        room = kb * g * (padded * d + t * wide) + threads * ROWS * (d + KEYS + wide)
        scratch, odd = torch.empty(room, dtype=torch.float32), torch.empty(kb * g, dtype=torch.int64)
        lists = blocks.lists()
        failed = self._compiled.load()[0](
            *addresses_of((q, k, v, out, logs, tops, scratch, odd, *lists)), threads,
            *q.stride(), *k.stride(), *v.stride(), *out.stride(),
            b, h, s, t, kb, g, min(blocks.rows, s), key_block, bits_of(scale), *shapes_of(lists), padded,
            *numbers_of(self._functions, given),
        )  # fmt: skip
        raise_failure(self._functions, failed)  # type: ignore[arg-type]
        return logs, tops
