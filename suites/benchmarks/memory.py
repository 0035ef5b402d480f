"""What `assay bench memory` trains: a transformer of 12 layers with dropout, whose activations outweigh its weights."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from assay.harness.case import Made, case

SIZES = {"tiny": (32, 2, 2, 2, 16), "small": (256, 4, 12, 8, 128)}
"""Width, heads, layers, batch, tokens."""


class Layer(nn.Module):
    """Attention and two linear layers, each behind a norm and before a dropout."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.project, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.dropout = nn.Dropout(0.1)

    def forward(self, x: Tensor) -> Tensor:
        batch, tokens, width = x.shape
        parts = self.project(self.first(x)).view(batch, tokens, 3, self.heads, width // self.heads)
        q, k, v = parts.permute(2, 0, 3, 1, 4)
        attended = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(batch, tokens, width)
        x = x + self.dropout(self.out(attended))
        return x + self.dropout(self.down(F.gelu(self.up(self.second(x)))))  # type: ignore[no-any-return]


class Loss(nn.Sequential):
    """The mean square of what the layers make of an input."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x).square().mean()  # type: ignore[no-any-return]


@case(modes=("train",), tags=("dropout",), sizes=("tiny", "small"))
def transformer(size: str) -> Made:
    """Layers as in a decoder without its mask."""
    width, heads, layers, batch, tokens = SIZES[size]
    return Loss(*(Layer(width, heads) for _ in range(layers))), (torch.randn(batch, tokens, width),), {}
