"""Interpolation recorded whole: of bytes also where sizes are symbols, since its pieces round otherwise than eager."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from compiler.fx import assay


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("mode", ["bilinear", "bicubic", "nearest"])
def test_interpolation_of_bytes_is_eagers(mode: str, dynamic: bool) -> None:
    def resized(x: Tensor) -> Tensor:
        return F.interpolate(x, scale_factor=1.7, mode=mode)

    torch._dynamo.reset()
    compiled = torch.compile(resized, backend=assay, dynamic=dynamic, options={"fallback": "error"})
    torch.manual_seed(0)
    for height in (6, 9):
        for layout in (torch.contiguous_format, torch.channels_last):
            x = torch.randint(0, 256, (2, 3, height, 7), dtype=torch.uint8).contiguous(memory_format=layout)
            assert torch.equal(compiled(x), resized(x)) and compiled(x).stride() == resized(x).stride()
