"""Tiles chosen by measuring on a GPU: results stay eager's, and what was measured is measured no more."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from assay.compiler import journal

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU"),
]


def program(x: Tensor, w: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    return F.layer_norm(x, x.shape[-1:], w), (x * w).sum(0), x.t() + x


def test_tuned_kernels_are_as_eager_and_remembered(tmp_path: Path) -> None:
    torch.manual_seed(0)
    x, w = torch.randn(1000, 1000, device="cuda"), torch.randn(1000, device="cuda")
    state = torch.cuda.get_rng_state()
    for tuned in (1, 0):
        torch._dynamo.reset()
        journal.reset()
        fast = torch.compile(program, backend="assay", options={"tune": True, "cache": str(tmp_path), "warm": False})
        for found, expected in zip(fast(x, w), program(x, w), strict=True):
            torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
        count = journal.totals()["tuned"]
        assert isinstance(count, int) and (count > 0) == bool(tuned)
    assert torch.equal(state, torch.cuda.get_rng_state())
