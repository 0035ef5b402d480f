"""Attention on a GPU whose scores a program changes: Triton programs that hold the program's functions.

    out, logs, tops = softmax(changed(scale q k^T)) v, the logarithm of each row's sum and its greatest score, to base 2

The programs are `attend.triton` and `derive.triton`, after constants and after the functions of scores as Triton
functions over a tile (`gpu_programs.py`). They are compiled when first called, for each way in which heads may lie, and
serve all sizes. Blocks of keys that the block mask leaves out are not read.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Sequence

import torch
from torch import Tensor

from assay.compiler.ir.tensors.layout.alignment import ALIGNED_BYTES
from assay.compiler.kernels.flex_attention.cpu_backward import Heads
from assay.compiler.kernels.flex_attention.gpu_programs import (
    Load,
    Plan,
    Programs,
    Tiling,
    Variant,
    launch_of,
    lists_of,
)
from assay.compiler.kernels.flex_attention.score_code import BlockMask, ScoreFunction, bits_of, shapes_of
from assay.compiler.kernels.flex_attention.score_programs import numbers_of, tensors_of
from assay.compiler.toolchain.gpu.written_programs import MOST


class AttentionPrograms:
    """The kernel for one `change` of scores, one dtype, and the elements of a head of q and of v."""

    def __init__(
        self, change: ScoreFunction, dtype: torch.dtype, depth: int, out_depth: int, load: Load | None = None
    ) -> None:
        self._programs = Programs(("attend.triton",), (change,), dtype, (depth, out_depth), load)

    def __call__(
        self, heads: tuple[Tensor, Tensor, Tensor], out: Tensor, blocks: BlockMask, given: Sequence[Tensor | int],
        scale: float,
    ) -> tuple[Tensor, Tensor]:  # fmt: skip
        """Attention into `out`. Returns the logarithms and the greatest scores of its rows.

        Shapes: `q[b, h, s, d], k[b | 1, g, t, d], v[b | 1, g, t, e] -> [b, h, s, e], [b, h, s], [b, h, s]` for h a
        multiple of g; no size is 0.

        Raises: BuildError where Triton fails. A lookup out of range stops the device, as in eager.
        """
        q, k, v = heads
        lists, functions = blocks.lists(), self._programs.functions
        read, lying = numbers_of(functions, given), (q, k, v, out)
        key = _key_of(lying, lists, blocks, read, scale)
        launch = self._programs.planned(key, lambda: self._plan(lying, lists, blocks, read, scale))
        logs, tops = (q.new_empty(q.shape[:3], dtype=torch.float32) for _ in range(2))
        launch[0]((q, k, v, out, logs, tops, *lists_of(lists), *tensors_of(functions, given)))
        return logs, tops

    def _plan(
        self, lying: Sequence[Tensor], lists: Sequence[Tensor | None], blocks: BlockMask, read: Sequence[int],
        scale: float,
    ) -> Plan:  # fmt: skip
        q, k, v, out = lying
        call = _Call(q, k, v, blocks, scale)
        variant = call.variant(lying, lists[2] is not None, False, read)
        ((tiling, attend),) = self._programs.of(("attend",), variant, q.device)
        strides = [*q.stride(), *call.of_keys(k), *call.of_keys(v), *out.stride()]
        numbers = (*strides, *call.numbers(tiling, lists), *read)
        return (launch_of(attend, call.row_tiles(tiling) * call.all_heads, numbers),)


class BackwardPrograms:
    """The kernels of gradients for a `change` of scores with its derivative, one dtype, and the elements of a head of q
    and of v. `collect` adds to the gradients of the tensors at the places `collected` of what the functions are given.
    """

    def __init__(
        self, functions: tuple[ScoreFunction, ScoreFunction, ScoreFunction], collected: Sequence[int],
        dtype: torch.dtype, depths: tuple[int, int], load: Load | None = None,
    ) -> None:  # fmt: skip
        files = ("attend.triton", "derive.triton")
        self._programs = Programs(files, functions, dtype, depths, load)
        self._collected = tuple(collected)

    def __call__(
        self, heads: Heads, results: tuple[Tensor, Tensor, Tensor], blocks: BlockMask, turned: BlockMask,
        given: Sequence[Tensor | int], scale: float,
    ) -> Tensor:  # fmt: skip
        """The gradients of q, k and v, into `results`. Returns those of what is collected, one after the other. The
        lists of `turned` say which blocks of rows read each block of keys.

        Raises: as `AttentionPrograms`.
        """
        q, k, v, gradient, functions = heads.q, heads.k, heads.v, heads.gradient, self._programs.functions
        lists, across, read = blocks.lists(), turned.lists(), numbers_of(functions, given)
        of_logs = None if heads.of_logs is None else heads.of_logs.contiguous()
        lying = (q, k, v, heads.out, gradient, *results)
        key = (*_key_of(lying, (*lists, *across), blocks, read, scale), of_logs is None)
        kept = (lying, lists, across, read, of_logs is not None)
        plan = self._programs.planned(key, lambda: self._plan(_Call(q, k, v, blocks, scale), *kept))
        shift, of_queries, of_keys = plan
        logs = heads.logs.contiguous()
        shifts, (of_q, of_k, of_v) = torch.empty_like(logs), results
        sizes = [given[place].numel() for place in self._collected]  # type: ignore[union-attr]
        collected = q.new_zeros(sum(sizes), dtype=torch.float64)
        addresses, room = tensors_of(functions, given), collected if self._collected else shifts
        shift((heads.out, gradient, logs if of_logs is None else of_logs, shifts))
        of_queries((q, k, v, gradient, logs, shifts, of_q, room, *lists_of(lists), *addresses))
        of_keys((q, k, v, gradient, logs, shifts, of_k, of_v, *lists_of(across), *addresses))
        return collected

    def _plan(
        self, call: _Call, lying: Sequence[Tensor], lists: Sequence[Tensor | None], across: Sequence[Tensor | None],
        read: Sequence[int], has_of_logs: bool,
    ) -> Plan:  # fmt: skip
        q, k, v, out, gradient, of_q, of_k, of_v = lying
        variant = call.variant(lying, lists[2] is not None, has_of_logs, read)
        shift, of_queries, of_keys = self._programs.of(("shift", "of_queries", "of_keys"), variant, q.device)
        lies = (*out.stride(), *gradient.stride(), call.heads, call.rows, call.all_heads)
        strides = [*q.stride(), *call.of_keys(k), *call.of_keys(v), *gradient.stride()]
        by_rows = (*strides, *of_q.stride(), *call.numbers(of_queries[0], lists), *read)
        by_keys = (*strides, *of_k.stride(), *of_v.stride(), *call.numbers(of_keys[0], across, by_keys=True), *read)
        return (
            launch_of(shift[1], -(-call.rows // shift[0].rows) * call.all_heads, lies),
            launch_of(of_queries[1], call.row_tiles(of_queries[0]) * call.all_heads, by_rows),
            launch_of(of_keys[1], call.key_tiles(of_keys[0]) * call.all_key_heads, by_keys),
        )


# ---- a call


def _key_of(
    lying: Sequence[Tensor], lists: Sequence[Tensor | None], blocks: BlockMask, read: Sequence[int], scale: float
) -> tuple[object, ...]:
    """What a plan of launches depends on."""
    addresses = functools.reduce(operator.or_, (each.data_ptr() for each in lying))
    return (
        lying[0].device, *((each.shape, each.stride()) for each in lying),
        *(None if each is None else each.shape for each in lists), blocks.rows, blocks.keys, *read, scale,
        addresses % ALIGNED_BYTES == 0, torch.backends.cuda.matmul.allow_tf32,
    )  # fmt: skip


class _Call:
    """The sizes of a call, and the numbers that programs are given of them."""

    def __init__(self, q: Tensor, k: Tensor, v: Tensor, blocks: BlockMask, scale: float) -> None:
        (self.batches, self.heads, self.rows, _), (self.key_batches, self.key_heads, self.keys, _) = q.shape, k.shape
        self.all_heads, self.all_key_heads = self.batches * self.heads, self.batches * self.key_heads
        self.row_block, self.key_block = min(blocks.rows, self.rows), min(blocks.keys, self.keys)
        self.scale = scale

    def of_keys(self, heads: Tensor) -> tuple[int, ...]:
        """The strides of keys or values, with none between batches that share them."""
        batch, *others = heads.stride()
        return (0 if self.key_batches == 1 else batch, *others)

    def row_tiles(self, tiling: Tiling) -> int:
        return -(-self.rows // self.row_block) * -(-self.row_block // tiling.rows)

    def key_tiles(self, tiling: Tiling) -> int:
        return -(-self.keys // self.key_block) * -(-self.key_block // tiling.keys)

    def numbers(self, tiling: Tiling, lists: Sequence[Tensor | None], by_keys: bool = False) -> list[int]:
        """What a program that walks through lists is given, after strides."""
        all_heads, tiles = self.all_key_heads if by_keys else self.all_heads, self.row_tiles(tiling)
        return [
            self.heads, self.rows, self.keys, self.heads // self.key_heads, self.row_block, self.key_block, all_heads,
            tiles, -(-self.row_block // tiling.rows), -(-self.key_block // tiling.keys), bits_of(self.scale),
            *shapes_of(lists),
        ]  # fmt: skip

    def variant(self, lying: Sequence[Tensor], has_full: bool, has_of_logs: bool, numbers: Sequence[int]) -> Variant:
        """What programs may count on in this call, of tensors that lie so and of what the functions are given."""
        strides = [stride for each in lying for stride in each.stride()[:3]]
        spans = [sum((n - 1) * step for n, step in zip(e.shape[2:], e.stride()[2:], strict=True)) for e in lying]
        is_packed = all(each.stride(3) == 1 for each in lying)
        return Variant(
            is_wide=max(*spans, *strides, *numbers, self.rows, self.keys) >= MOST,
            is_packed=is_packed,
            is_even=is_packed and not any(stride % ALIGNED_BYTES for stride in strides),
            is_aligned=not any(each.data_ptr() % ALIGNED_BYTES for each in lying),
            row_multiple=_multiple_of(self.rows, self.row_block),
            key_multiple=_multiple_of(self.keys, self.key_block),
            has_full=has_full,
            has_of_logs=has_of_logs,
            precision="tf32" if torch.backends.cuda.matmul.allow_tf32 else "ieee",
        )


def _multiple_of(size: int, block: int) -> int:
    """Tiles of so many are whole, in each block: a power of two."""
    return block & -block if size % block == 0 else 1
