"""`assay::flex_attention`: attention whose scores a program's own functions change and hide.

    out = softmax(where(mask(b, h, q, k), score(scale q k^T, b, h, q, k), -inf)) v

`score` and `mask` are texts (`ir/graph/scalar_functions.py`) of functions that also take the tensors and the integers
beside them. `blocks` are the lists of a block mask, whose blocks have `sizes` rows and keys. A block that is in none of
the lists is not read, as torch's compiled kernels have it; a block in the last two lists is not masked.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

import torch
from torch import Tensor

from assay.compiler.ir.graph.scalar_functions import Given
from assay.compiler.kernels.flex_attention import ELEMENTS, AttentionKernel, BlockMask, Changes
from assay.compiler.ops.calls.score_kernels import Functions, score_kernel
from assay.compiler.ops.registry import Declined, Kind, record

DEEPEST = 256
"""Elements of a head up to which a tile of rows stays in the caches."""

_GIVEN = (
    "Tensor[] of_score, SymInt[] score_numbers, Tensor[] of_mask, SymInt[] mask_numbers, Tensor[] blocks,"
    " SymInt[] sizes, str score, str mask, float scale"
)
_LIBRARY = torch.library.Library("assay", "FRAGMENT")
_LIBRARY.define(f"flex_attention(Tensor q, Tensor k, Tensor v, {_GIVEN}) -> (Tensor out, Tensor logs, Tensor tops)")


def kinds_of(tensors: Sequence[Tensor], numbers: Sequence[int | torch.SymInt]) -> tuple[Given, ...]:
    """What a function is given, by its kinds."""
    return (*((tensor.dtype, tensor.dim()) for tensor in tensors), *(None for _ in numbers))


def has_kernel(functions: Functions, dtype: torch.dtype, depth: int, out_depth: int) -> bool:
    """Whether there is a kernel for heads of so many elements that holds the functions."""
    if dtype not in ELEMENTS or not 0 < depth <= DEEPEST or not 0 < out_depth <= DEEPEST:
        return False
    try:
        _kernel(functions, dtype, depth, out_depth).prepare()
    except Declined:
        return False
    return True


@functools.lru_cache(maxsize=256)
def _kernel(functions: Functions, dtype: torch.dtype, depth: int, out_depth: int) -> AttentionKernel:
    """Raises: Declined for functions that no kernel is made of."""
    changes = Changes(score_kernel(functions, has_mask=True), score_kernel(functions, has_mask=False))
    return AttentionKernel(changes, dtype, depth, out_depth)


def _like_query(q: Tensor, v: Tensor) -> Tensor:
    """The result, with its dimensions in the order of the query's, but for the elements of a head, which lie together."""
    size = (*q.shape[:3], v.shape[3])
    order = sorted(range(4), key=lambda dim: (q.stride(dim), -dim))
    stride = _dense(size, order)
    if stride[3] != 1:
        stride = _dense(size, sorted(order, key=lambda dim: dim != 3))
    return q.new_empty_strided(size, stride)


def _dense(size: Sequence[int], order: Sequence[int]) -> list[int]:
    """The strides of a tensor without gaps whose dimensions lie in this order, the innermost first."""
    stride, step = [1] * len(size), 1
    for dim in order:
        stride[dim] = step
        step = step * size[dim]
    return stride


def _run(
    q: Tensor, k: Tensor, v: Tensor, of_score: Sequence[Tensor], score_numbers: Sequence[int],
    of_mask: Sequence[Tensor], mask_numbers: Sequence[int], blocks: Sequence[Tensor], sizes: Sequence[int],
    score: str, mask: str, scale: float,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    functions = Functions(score, mask, kinds_of(of_score, score_numbers), kinds_of(of_mask, mask_numbers))
    out = _like_query(q, v)
    if 0 in (*q.shape, *v.shape):
        nothing = q.new_full(q.shape[:3], -torch.inf, dtype=torch.float32)
        return out.zero_(), nothing, nothing.clone()
    full = (blocks[2], blocks[3]) if len(blocks) == 4 else None
    given = (*of_score, *score_numbers, *of_mask, *mask_numbers)
    kernel = _kernel(functions, q.dtype, q.shape[3], v.shape[3])
    logs, tops = kernel((q, k, v), out, BlockMask((blocks[0], blocks[1]), full, *sizes), given, scale)
    return out, logs, tops


def _meta(q: Tensor, k: Tensor, v: Tensor, *_: object) -> tuple[Tensor, Tensor, Tensor]:
    logs, tops = (q.new_empty(q.shape[:3], dtype=torch.float32) for _ in range(2))
    return _like_query(q, v), logs, tops


_LIBRARY.impl("flex_attention", _run, "CPU")
_LIBRARY.impl("flex_attention", _meta, "Meta")

flex_attention = torch.ops.assay.flex_attention.default

record(Kind.contraction, None, "assay.flex_attention")
