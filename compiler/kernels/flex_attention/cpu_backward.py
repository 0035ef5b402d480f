"""The gradients of attention on the CPU whose scores a program changes (`compiler/kernels/flex_attention/cpu.py`).

The C++ is `compiler/kernels/flex_attention/derive.h`. Scores are made again, a tile at a time. Beside the gradients
of q, k and v there may be those of what the program's functions read, such as a table of biases. These are summed up in
float64, by each thread for itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

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

_CALL = """const u64 failed = derive_attention(
      Gradients{(const E*)v[0], (const E*)v[1], (const E*)v[2], (const E*)v[3], (const E*)v[4], (const f32*)v[5],
                (const f32*)v[6], (E*)v[7], (E*)v[8], (E*)v[9],
                Strides{v[18], v[19], v[20], v[21]}, Strides{v[22], v[23], v[24], v[25]},
                Strides{v[26], v[27], v[28], v[29]}, Strides{v[30], v[31], v[32], v[33]},
                Strides{v[34], v[35], v[36], v[37]}, Strides{v[38], v[39], v[40], v[41]},
                Strides{v[42], v[43], v[44], v[45]}, Strides{v[46], v[47], v[48], v[49]},
                v[50], v[51], v[52], v[53], v[54], v[55], v[56], v[57], m::bits<f32>((i32)v[58]),
                Blocks{(const i32*)v[13], (const i32*)v[14], v[59], v[60], v[61], v[62]},
                Blocks{(const i32*)v[15], (const i32*)v[16], v[63], v[64], v[65], v[66]},
                v + 70, (f64*)v[12], v[67], v[68], v[69], nullptr, nullptr, nullptr, nullptr, (i64*)v[11]},
      (f32*)v[10], v[17]);"""
_COUNT = 70
_ANSWER = "  return PyLong_FromUnsignedLongLong(failed);\n"


@dataclass(frozen=True, slots=True)
class Heads:
    """What backward is given of the forward: its inputs, its results, and the gradients of these; None for one that
    nothing depends on."""

    q: Tensor
    k: Tensor
    v: Tensor
    out: Tensor
    logs: Tensor
    gradient: Tensor
    of_logs: Tensor | None


class BackwardKernel:
    """The kernel for one `change` of scores with its derivative, one dtype, and the elements of a head of q and of v.

    `collect` adds to the gradients of the tensors at the places `collected` of what the functions are given.
    """

    def __init__(
        self, functions: tuple[ScoreFunction, ScoreFunction, ScoreFunction], collected: Sequence[int],
        dtype: torch.dtype, depths: tuple[int, int],
    ) -> None:  # fmt: skip
        self._functions, self._collected = functions, tuple(collected)
        count = sum(each.count for function in functions for each in function.kernels)
        function = Function("derive_changed", _COUNT + count, _CALL, _ANSWER)
        head = head_of(dtype, *depths) + text_of(functions)
        self._compiled = Tiled("flex_attention/derive.h", [function], head, ["flex_attention/blocks.h"])
        self.prepare = self._compiled.prepare

    def __call__(
        self, heads: Heads, results: tuple[Tensor, Tensor, Tensor], blocks: BlockMask, given: Sequence[Tensor | int],
        scale: float,
    ) -> Tensor:  # fmt: skip
        """The gradients of q, k and v, into `results`. Returns those of what is collected, one after the other.

        Raises: what a function's own lookups raise in eager, for the scores that are made.
        """
        (b, h, s, d), (kb, g, t, e) = heads.q.shape, heads.v.shape
        sizes = [given[place].numel() for place in self._collected]  # type: ignore[union-attr]
        key_block = min(blocks.keys, t)
        padded = -(-t // key_block) * round_up(key_block, PANEL)
        work = b * h * s * t * (3 * d + 2 * e) * 2
        threads = max(1, min(torch.get_num_threads(), work // number("attention_flops_per_thread")))
        parts = -(-threads // (kb * g))
        into, wide = round_up(d, WIDEST), round_up(e, WIDEST)
        of_heads = padded * (d + e) + t * into + parts * t * (into + wide)
        room = kb * g * of_heads + threads * ROWS * (2 * into + wide + 4 * KEYS)
        scratch, odd = torch.empty(room, dtype=torch.float32), torch.empty(kb * g, dtype=torch.int64)
        collected = torch.zeros((threads, sum(sizes)), dtype=torch.float64)
        of_logs = None if heads.of_logs is None else heads.of_logs.contiguous()
        tensors = (heads.q, heads.k, heads.v, heads.out, heads.gradient)
        lists = blocks.lists()
        failed = self._compiled.load()[0](
            *addresses_of((*tensors, heads.logs.contiguous(), of_logs, *results, scratch, odd, collected, *lists)),
            threads, *(stride for each in (*tensors, *results) for stride in each.stride()),
            b, h, s, t, kb, g, min(blocks.rows, s), key_block, bits_of(scale), *shapes_of(lists),
            sum(sizes), parts, padded, *numbers_of(self._functions, given),
        )  # fmt: skip
        raise_failure(self._functions, failed)  # type: ignore[arg-type]
        return collected.sum(0)
