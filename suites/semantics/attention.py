"""Attention with a score function and a block mask."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

from assay.harness.case import Made
from assay.suites.semantics.program import leaf, numbers, program


@program("attention", modes=("infer",))
def attention_with_a_score_of_positions() -> Made:
    def f(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return flex_attention(q, k, v, score_mod=lambda s, b, h, i, j: s + (i - j) * 0.1)  # type: ignore[return-value]

    return f, (numbers(1, 2, 8, 4), numbers(1, 2, 8, 4), numbers(1, 2, 8, 4)), {}


@program("attention", modes=("infer",))
def attention_with_a_captured_bias() -> Made:
    def f(q: Tensor, bias: Tensor) -> Tensor:
        return flex_attention(q, q, q, score_mod=lambda s, b, h, i, j: s * bias[h] + bias[h] * (i >= j))  # type: ignore[return-value]

    return f, (numbers(2, 2, 8, 4), numbers(2)), {}


@program("attention", modes=("infer",))
def attention_with_a_block_mask() -> Made:
    mask = create_block_mask(lambda b, h, i, j: i >= j, None, None, 40, 40, device="cpu", BLOCK_SIZE=16)

    def f(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return flex_attention(q, k, v, block_mask=mask)  # type: ignore[return-value]

    return f, (numbers(2, 2, 40, 16), numbers(2, 2, 40, 16), numbers(2, 2, 40, 8)), {}


@program("attention", modes=("infer",))
def attention_whose_rows_are_hidden() -> Made:
    mask = create_block_mask(lambda b, h, i, j: (i >= j) & (i < 30), None, None, 40, 40, device="cpu", BLOCK_SIZE=16)

    def f(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        return flex_attention(q, k, v, block_mask=mask, return_lse=True)  # type: ignore[return-value]

    return f, (numbers(1, 2, 40, 16), numbers(1, 2, 40, 16), numbers(1, 2, 40, 16)), {}


@program("attention", modes=("infer",))
def attention_of_grouped_queries_that_lie_across() -> Made:
    def f(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        q, k, v = (each.transpose(1, 2) for each in (q, k, v))
        return flex_attention(q, k, v, lambda s, b, h, i, j: 5 * torch.tanh(s / 5), enable_gqa=True)  # type: ignore[return-value]

    return f, (numbers(2, 9, 4, 16), numbers(2, 11, 2, 16), numbers(2, 11, 2, 16)), {}


@program("attention", modes=("infer",))
def attention_within_documents_in_half_precision() -> Made:
    documents = torch.tensor([0] * 7 + [1] * 20 + [2] * 13)

    def same(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        return (i >= j) & (documents[i] == documents[j])

    mask = create_block_mask(same, None, None, 40, 40, device="cpu", BLOCK_SIZE=16)

    def f(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return flex_attention(q, k, v, block_mask=mask)  # type: ignore[return-value]

    return f, tuple(numbers(1, 2, 40, 16).bfloat16() for _ in range(3)), {}


@program("attention")
def attention_with_a_learned_bias() -> Made:
    def f(q: Tensor, bias: Tensor) -> Tensor:
        return flex_attention(q, q, q, lambda s, b, h, i, j: s * bias[0, i] + bias[h, i - j])  # type: ignore[return-value]

    return f, (numbers(2, 2, 8, 16), leaf(2, 8)), {}


@program("attention", "asserted-on-the-device")
def attention_among_a_part_of_the_rows() -> Made:
    """With dynamic sizes the number of rows is computed, and could be 0: a kernel of attention is not asked that.

    On a GPU, eager's kernel ends the process where its operands begin off 16 bytes, as some calls' do.
    """

    def f(q: Tensor) -> Tensor:
        part = q[:, :, 3:]
        return F.scaled_dot_product_attention(part, part, part)

    return f, (leaf(2, 2, 8, 4),), {}
