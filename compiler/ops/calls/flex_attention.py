"""`assay::flex_attention`: attention whose scores a program's own functions change and hide.

    out = softmax(where(mask(b, h, q, k), score(scale q k^T, b, h, q, k), -inf)) v

`score` and `mask` are texts (`ir/graph/scalar_functions.py`) of functions that also take the tensors and the integers
beside them. `blocks` are the lists of a block mask, whose blocks have `sizes` rows and keys. A block that is in none of
the lists is not read, as torch's compiled kernels have it; a block in the last two lists is not masked. `turned` are
the lists of blocks of rows that read each block of keys, which backward on a GPU walks through.

`derivative` is the text of the score function's derivative, empty where nobody asks for gradients. It also gives the
gradients of those at `wanted` among `of_score`, which backward returns as one row.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from assay.compiler.ir.graph.scalar_functions import Given
from assay.compiler.ir.tensors.devices import LEAST_OF_BFLOAT16, has_triton, least_capability
from assay.compiler.kernels.flex_attention.cpu import AttentionKernel
from assay.compiler.kernels.flex_attention.cpu_backward import BackwardKernel, Heads
from assay.compiler.kernels.flex_attention.gpu import AttentionPrograms, BackwardPrograms
from assay.compiler.kernels.flex_attention.score_code import ELEMENTS, BlockMask
from assay.compiler.kernels.flex_attention.score_programs import takes_functions
from assay.compiler.ops.calls.score_kernels import Functions, change_of, collection_of, derivative_of
from assay.compiler.ops.registry import Declined, Kind, record

DEEPEST = 256
"""Elements of a head up to which a tile of rows stays in the caches."""

_GIVEN = (
    "Tensor[] of_score, SymInt[] score_numbers, Tensor[] of_mask, SymInt[] mask_numbers, Tensor[] blocks,"
    " Tensor[] turned, SymInt[] sizes, str score, str mask, str derivative, int[] wanted, float scale"
)
_LIBRARY = torch.library.Library("assay", "FRAGMENT")
_LIBRARY.define(f"flex_attention(Tensor q, Tensor k, Tensor v, {_GIVEN}) -> (Tensor out, Tensor logs, Tensor tops)")
_LIBRARY.define(
    "flex_attention_backward(Tensor? gradient, Tensor? of_logs, Tensor q, Tensor k, Tensor v, Tensor out, Tensor logs,"
    f" {_GIVEN}) -> (Tensor of_q, Tensor of_k, Tensor of_v, Tensor given)"
)


def kinds_of(tensors: Sequence[Tensor], numbers: Sequence[int | torch.SymInt]) -> tuple[Given, ...]:
    """What a function is given, by its kinds."""
    return (*((tensor.dtype, tensor.dim()) for tensor in tensors), *(None for _ in numbers))


def has_kernel(functions: Functions, device: torch.device, dtype: torch.dtype, depth: int, out_depth: int) -> bool:
    """Whether a device has a kernel for heads of so many elements that holds the functions. On the CPU it is compiled
    beside what the caller goes on to do."""
    if dtype not in ELEMENTS or not 0 < depth <= DEEPEST or not 0 < out_depth <= DEEPEST:
        return False
    try:
        if device.type == "cuda":
            return _has_programs(functions)
        _kernel(functions, dtype, depth, out_depth).prepare()
        if functions.derivative:
            _backward_kernel(functions, dtype, depth, out_depth).prepare()
    except Declined:
        return False
    return True


def _has_programs(functions: Functions) -> bool:
    """Whether the GPU has programs for the functions. Gradients of what functions read are sums by atomic additions,
    which come in no order. Raises: Declined for functions that no kernel is made of."""
    capability = least_capability()
    if not has_triton() or capability is None or capability < LEAST_OF_BFLOAT16:
        return False
    made = [change_of(functions)]
    if functions.derivative:
        made += [collection_of(functions), derivative_of(functions)]
    is_varying = bool(functions.wanted) and torch.are_deterministic_algorithms_enabled()
    return takes_functions(made) and not is_varying


@functools.lru_cache(maxsize=256)
def _programs(functions: Functions, dtype: torch.dtype, depth: int, out_depth: int) -> AttentionPrograms:
    return AttentionPrograms(change_of(functions), dtype, depth, out_depth)


@functools.lru_cache(maxsize=256)
def _backward_programs(functions: Functions, dtype: torch.dtype, depth: int, out_depth: int) -> BackwardPrograms:
    made = (change_of(functions), collection_of(functions), derivative_of(functions))
    return BackwardPrograms(made, functions.wanted, dtype, (depth, out_depth))


@functools.lru_cache(maxsize=256)
def _kernel(functions: Functions, dtype: torch.dtype, depth: int, out_depth: int) -> AttentionKernel:
    """Raises: Declined for functions that no kernel is made of."""
    return AttentionKernel(change_of(functions), dtype, depth, out_depth)


@functools.lru_cache(maxsize=256)
def _backward_kernel(functions: Functions, dtype: torch.dtype, depth: int, out_depth: int) -> BackwardKernel:
    """Raises: as `_kernel`."""
    made = (change_of(functions), collection_of(functions), derivative_of(functions))
    return BackwardKernel(made, functions.wanted, dtype, (depth, out_depth))


@dataclass(frozen=True, slots=True)
class _Changes:
    """How the scores are changed and hidden: the arguments of both operators after the heads, in their order."""

    of_score: Sequence[Tensor]
    score_numbers: Sequence[int]
    of_mask: Sequence[Tensor]
    mask_numbers: Sequence[int]
    blocks: Sequence[Tensor]
    turned: Sequence[Tensor]
    sizes: Sequence[int]
    score: str
    mask: str
    derivative: str
    places: Sequence[int]
    scale: float

    @property
    def functions(self) -> Functions:
        """What kernels are made of."""
        kinds = kinds_of(self.of_score, self.score_numbers), kinds_of(self.of_mask, self.mask_numbers)
        return Functions(self.score, self.mask, *kinds, self.derivative, tuple(self.places))

    @property
    def given(self) -> tuple[Tensor | int, ...]:
        """What both functions read."""
        return *self.of_score, *self.score_numbers, *self.of_mask, *self.mask_numbers

    @property
    def block_mask(self) -> BlockMask:
        return _mask_of(self.blocks, *self.sizes)

    @property
    def turned_mask(self) -> BlockMask | None:
        """The blocks of rows that read each block of keys, where there are lists of these."""
        rows, keys = self.sizes
        return _mask_of(self.turned, keys, rows) if self.turned else None

    @property
    def wanted(self) -> list[Tensor]:
        """The tensors of the score function whose gradients are asked for."""
        return [self.of_score[place] for place in self.places]


def _mask_of(lists: Sequence[Tensor], rows: int, keys: int) -> BlockMask:
    return BlockMask((lists[0], lists[1]), (lists[2], lists[3]) if len(lists) == 4 else None, rows, keys)


def _run(q: Tensor, k: Tensor, v: Tensor, *others: Any) -> tuple[Tensor, Tensor, Tensor]:
    out, changes = _like(q, v.shape[3]), _Changes(*others)
    if 0 in (*q.shape, *v.shape):
        nothing = q.new_full(q.shape[:3], -torch.inf, dtype=torch.float32)
        return out.zero_(), nothing, nothing.clone()
    kernel_of = _programs if q.is_cuda else _kernel
    kernel = kernel_of(changes.functions, q.dtype, q.shape[3], v.shape[3])
    logs, tops = kernel((q, k, v), out, changes.block_mask, changes.given, changes.scale)
    return out, logs, tops


def _meta(q: Tensor, k: Tensor, v: Tensor, *_: object) -> tuple[Tensor, Tensor, Tensor]:
    logs, tops = (q.new_empty(q.shape[:3], dtype=torch.float32) for _ in range(2))
    return _like(q, v.shape[3]), logs, tops


def _run_backward(
    gradient: Tensor | None, of_logs: Tensor | None, q: Tensor, k: Tensor, v: Tensor, out: Tensor, logs: Tensor,
    *others: Any,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    results, changes = (_like(q), _like(k), _like(v)), _Changes(*others)
    if 0 in (*q.shape, *v.shape):
        for each in results:
            each.zero_()
        return (*results, q.new_zeros(sum(each.numel() for each in changes.wanted), dtype=torch.float64))
    kind = changes.functions, q.dtype, q.shape[3], v.shape[3]
    heads = Heads(q, k, v, out, logs, torch.zeros_like(out) if gradient is None else gradient, of_logs)
    asked, turned = (changes.block_mask, changes.given, changes.scale), changes.turned_mask
    if turned is None:
        return (*results, _backward_kernel(*kind)(heads, results, *asked))
    return (*results, _backward_programs(*kind)(heads, results, asked[0], turned, *asked[1:]))


def _meta_backward(
    gradient: Tensor | None, of_logs: Tensor | None, q: Tensor, k: Tensor, v: Tensor, out: Tensor, logs: Tensor,
    *others: Any,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    count = sum(each.numel() for each in _Changes(*others).wanted)
    return _like(q), _like(k), _like(v), q.new_empty(count, dtype=torch.float64)


def _like(heads: Tensor, depth: int | None = None) -> Tensor:
    """Memory for a result, with its dimensions in the order of the heads', but for the elements of a head: these lie
    together."""
    size = (*heads.shape[:3], heads.shape[3] if depth is None else depth)
    order = sorted(range(4), key=lambda dim: (heads.stride(dim), -dim))
    stride = _dense(size, order)
    if stride[3] != 1:
        stride = _dense(size, sorted(order, key=lambda dim: dim != 3))
    return heads.new_empty_strided(size, stride)


def _dense(size: Sequence[int], order: Sequence[int]) -> list[int]:
    """The strides of a tensor without gaps whose dimensions lie in this order, the innermost first."""
    stride, step = [1] * len(size), 1
    for dim in order:
        stride[dim] = step
        step = step * size[dim]
    return stride


# ---- autograd


def _save(ctx: Any, inputs: Sequence[Any], output: tuple[Tensor, Tensor, Tensor]) -> None:
    q, k, v, of_score, score_numbers, of_mask, mask_numbers, blocks, turned, *ctx.others = inputs
    ctx.set_materialize_grads(False)
    ctx.numbers, ctx.counts = (score_numbers, mask_numbers), tuple(map(len, (of_score, of_mask, blocks, turned)))
    ctx.save_for_backward(q, k, v, *output[:2], *of_score, *of_mask, *blocks, *turned)


def _derive(ctx: Any, gradient: Tensor | None, of_logs: Tensor | None, _: object) -> tuple[Any, ...]:
    q, k, v, out, logs, *given = ctx.saved_tensors
    of_score, of_mask, blocks, turned = _split(given, ctx.counts)
    score_numbers, mask_numbers = ctx.numbers
    wanted = ctx.others[4]
    of_q, of_k, of_v, row = flex_attention_backward(
        gradient, of_logs, q, k, v, out, logs, of_score, score_numbers, of_mask, mask_numbers, blocks, turned,
        *ctx.others,
    )  # fmt: skip
    sizes = [of_score[place].numel() for place in wanted]
    starts = itertools.accumulate(sizes, initial=0)
    of_given: list[Tensor | None] = [None] * len(of_score)
    for place, start, size in zip(wanted, starts, sizes, strict=False):
        own = of_score[place]
        of_given[place] = row.narrow(0, start, size).view(own.shape).to(own.dtype)
    constants = (_none_of(each) for each in (score_numbers, of_mask, mask_numbers, blocks, turned, *ctx.others))
    return (of_q, of_k, of_v, of_given, *constants)


def _none_of(argument: object) -> list[None] | None:
    """No gradient of an argument: torch wants a list for each list of tensors, and for each list without elements."""
    if isinstance(argument, list | tuple) and all(isinstance(each, Tensor) for each in argument):
        return [None] * len(argument)
    return None


def _split(values: Sequence[Any], counts: Sequence[int]) -> list[list[Any]]:
    """The values in parts of so many."""
    rest = iter(values)
    return [list(itertools.islice(rest, count)) for count in counts]


for _device in ("CPU", "CUDA"):
    _LIBRARY.impl("flex_attention", _run, _device)
    _LIBRARY.impl("flex_attention_backward", _run_backward, _device)
_LIBRARY.impl("flex_attention", _meta, "Meta")
_LIBRARY.impl("flex_attention_backward", _meta_backward, "Meta")
torch.library.register_autograd("assay::flex_attention", _derive, setup_context=_save, lib=_LIBRARY)

flex_attention = torch.ops.assay.flex_attention.default
flex_attention_backward = torch.ops.assay.flex_attention_backward.default

record(Kind.contraction, None, "assay.flex_attention", "assay.flex_attention_backward")
