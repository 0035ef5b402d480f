"""Attention with a score function in other dtypes than its own: it is run as the calls that eager makes for it."""

from __future__ import annotations

import pytest
import torch
from torch.nn.attention.flex_attention import flex_attention
from torch.utils._python_dispatch import TorchDispatchMode

from assay.harness.judge.float64 import WIDER, Coarse, Drawn, Recast
from assay.harness.observe.plain_loops import plain_loops

WIDE = torch.float64


@pytest.mark.parametrize(
    "mode",
    [Recast(torch.float32, WIDE, WIDER[WIDE]), Coarse(), Drawn(lambda drawn: drawn)],
    ids=lambda mode: type(mode).__name__,
)
def test_attention_runs_in_float64(mode: TorchDispatchMode) -> None:
    torch.manual_seed(0)
    q, k, v = (torch.randn(1, 2, 5, 4, dtype=WIDE) for _ in range(3))
    with plain_loops(), mode:
        found = flex_attention(q, k, v, lambda s, b, h, i, j: torch.tanh(s) * (i >= j))
    scores = torch.tanh(q @ k.mT / 2) * torch.ones(5, 5, dtype=WIDE).tril()
    torch.testing.assert_close(found, torch.softmax(scores, -1) @ v, rtol=1e-7, atol=1e-7)
