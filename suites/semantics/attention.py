"""Attention with a score function and a block mask."""

from __future__ import annotations

import torch
from torch import Tensor, nn
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


@program("attention", modes=("infer",))
def attention_of_one_query_over_many_keys() -> Made:
    def f(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return flex_attention(q, k, v, score_mod=lambda s, b, h, i, j: s + j * 0.01)  # type: ignore[return-value]

    return f, (numbers(2, 2, 1, 8), numbers(2, 2, 300, 8), numbers(2, 2, 300, 8)), {}


@program("attention", modes=("infer",))
def attention_with_a_table_of_distances() -> Made:
    def f(q: Tensor, k: Tensor, table: Tensor, scale: Tensor) -> Tensor:
        def score(s: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
            return s * scale[b] + table[h, (i - j).abs()]

        return flex_attention(q, k, k, score_mod=score)  # type: ignore[return-value]

    return f, (numbers(2, 2, 17, 8), numbers(2, 2, 23, 8), numbers(2, 40), numbers(2)), {}


@program("attention", modes=("infer",))
def attention_with_scores_hidden_by_a_choice() -> Made:
    def f(q: Tensor) -> Tensor:
        return flex_attention(q, q, q, score_mod=lambda s, b, h, i, j: torch.where(i >= j, s, -torch.inf))  # type: ignore[return-value]

    return f, (numbers(1, 2, 9, 4),), {}


@program("attention", modes=("infer",))
def attention_with_a_prefix_of_each_batch() -> Made:
    lengths = torch.tensor([3, 7])
    mask = create_block_mask(lambda b, h, i, j: (j < lengths[b]) | (i >= j), 2, None, 33, 33, device="cpu")

    def f(q: Tensor, k: Tensor) -> Tensor:
        scaled = flex_attention(q, k, k, block_mask=mask, scale=0.3, score_mod=lambda s, b, h, i, j: s * 1.1)
        return scaled  # type: ignore[return-value]

    return f, (numbers(2, 2, 33, 8), numbers(2, 2, 33, 8)), {}


@program("attention", modes=("infer",))
def attention_in_two_layers_of_a_module() -> Made:
    class Layers(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.into, self.out = nn.Linear(16, 48), nn.Linear(16, 16)
            self.bias = nn.Parameter(torch.randn(2, 65))

        def forward(self, x: Tensor) -> Tensor:
            for _ in range(2):
                q, k, v = self.into(x).view(2, -1, 3, 2, 8).permute(2, 0, 3, 1, 4)
                made = flex_attention(q, k, v, score_mod=lambda s, b, h, i, j: s + self.bias[h, (i - j) + 32])
                x = x + self.out(made.transpose(1, 2).reshape(2, -1, 16))  # type: ignore[union-attr]
            return x

    return Layers().requires_grad_(False), (numbers(2, 31, 16),), {}
