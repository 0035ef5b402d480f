"""Attention by a flash kernel wherever that gives what the written-out form gives, which is run where it may not.

    o = softmax(q k^T * scale, changed by each term in turn) v

The kernel, ours or ATen's, never finds a maximum in a row that is all NaN or all -inf: it gives zeros there, and 0 as
the logarithm of the row's sum. Every other NaN or infinity of a score is in that logarithm too, and one of `v` is in
every row of `o`. A look at the logarithms and at the first row tells whether the kernel's result is eager's. Backward
makes the probabilities again from the logarithms, which is as exact as eager while these are small: hence `limit`.

Source: what ATen's kernel gives in such rows is read off aten/src/ATen/native/cpu/FlashAttentionKernel.cpp, torch 2.13.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from assay.compiler.kernels.attention_rates import is_own_fastest
from assay.compiler.kernels.flash_attention import DEPTHS, flash_attention

aten = torch.ops.aten
_forward = torch._C._VariableFunctions._scaled_dot_product_flash_attention_for_cpu
_backward = aten._scaled_dot_product_flash_attention_for_cpu_backward.default
_norm = torch.linalg.vector_norm
_INFINITE = float("inf")

SAFE = 2.0**60
"""Sums of products of gradients and values below this overflow in no order."""


def attend(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, terms: Sequence[Tensor], fills: Sequence[float],
    scale: float, limit: float,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Attention, and the logarithms of its rows' sums; these are NaN where the written-out form had to run.

    A boolean term hides scores behind the next of `fills`, any other is added. `mask` is all terms as one, with -inf
    where scores are hidden.

    Shapes: `q[b, h, s, d], k[b, h, t, d], v[b, h, t, d], mask[b | 1, h | 1, s | 1, t | 1] -> [b, h, s, d], [b, h, s]`
    """
    if q.shape[3] in DEPTHS and is_own_fastest():
        out, logs = flash_attention(q, k, v, False, mask, scale)
    else:
        out, logs = _forward(q, k, v, 0.0, False, attn_mask=mask, scale=scale)
    is_right = (
        logs.all().item()
        and _norm(logs, _INFINITE).item() < limit
        and _norm(out[:, :, 0], _INFINITE).item() < _INFINITE
    )
    if not is_right:
        out.copy_(torch.matmul(_probabilities(q, k, terms, fills, scale), v))
        logs.fill_(torch.nan)
    return out, logs


def attend_backward(
    gradient: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, logs: Tensor, mask: Tensor | None,
    terms: Sequence[Tensor], fills: Sequence[float], scale: float,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """The gradients of `q`, `k` and `v`, from what `attend` was given and has returned."""
    first = logs[0, 0, 0].item()
    if first == first and _norm(gradient).item() * _norm(v).item() < SAFE:
        return _backward(gradient, q, k, v, out, logs, 0.0, False, attn_mask=mask, scale=scale)
    weights = _probabilities(q, k, terms, fills, scale)
    of_weights = torch.matmul(gradient, v.transpose(2, 3))
    of_scores = aten._softmax_backward_data.default(of_weights, weights, -1, weights.dtype)
    for term in terms:
        if term.dtype is torch.bool:
            of_scores = of_scores.masked_fill(term, 0)
    of_scores = of_scores * scale
    return (
        _laid_out(torch.matmul(of_scores, k)),
        _laid_out(torch.matmul(of_scores.transpose(2, 3), q)),
        _laid_out(torch.matmul(weights.transpose(2, 3), gradient)),
    )


def _probabilities(q: Tensor, k: Tensor, terms: Sequence[Tensor], fills: Sequence[float], scale: float) -> Tensor:
    scores = torch.matmul(q, k.transpose(2, 3)) * scale
    following = iter(fills)
    for term in terms:
        scores = scores.masked_fill(term, next(following)) if term.dtype is torch.bool else scores + term
    return torch.softmax(scores, -1)


def _laid_out(value: Tensor) -> Tensor:
    """As the kernel lays its results out: the heads of a position lie together."""
    return value.transpose(1, 2).contiguous().transpose(1, 2)
