"""Weights of eight bits out of `torchao`, in the linear layers of two small blocks of a transformer."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from assay.harness.case import Made
from assay.suites.libraries.row import library

WIDTH, HEADS = 32, 4


class Block(nn.Module):
    """Attention and two layers behind it: x[batch, length, width] -> y[batch, length, width]."""

    def __init__(self) -> None:
        super().__init__()
        self.before, self.between = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.query, self.key, self.value, self.out = (nn.Linear(WIDTH, WIDTH) for _ in range(4))
        self.wide, self.narrow = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        normed = self.before(x)
        q, k, v = (_heads(layer(normed)) for layer in (self.query, self.key, self.value))
        attended = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(attended.transpose(1, 2).flatten(2))
        return x + self.narrow(nn.functional.gelu(self.wide(self.between(x))))


def _heads(x: Tensor) -> Tensor:
    """x[batch, length, width] -> y[batch, head, length, width / heads]."""
    return x.unflatten(-1, (HEADS, -1)).transpose(1, 2)


@library("torchao", modes=("infer",), tags=("subclass",))
def int8_weights() -> Made:
    from torchao import quantization

    module = nn.Sequential(Block(), Block()).eval()
    quantization.quantize_(module, quantization.Int8WeightOnlyConfig())
    return module, (torch.randn(2, 6, WIDTH),), {}
