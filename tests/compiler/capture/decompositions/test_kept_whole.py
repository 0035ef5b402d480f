"""Interpolation recorded whole: of bytes also where sizes are symbols, since its pieces round otherwise than eager."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from assay.compiler import journal
from assay.compiler.entry.dynamo import assay


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


@pytest.mark.parametrize("mode", ["nearest", "nearest-exact"])
def test_nearest_interpolation_of_columns_is_in_rows(mode: str) -> None:
    def resized(x: Tensor) -> Tensor:
        return F.interpolate(x, scale_factor=1.7, mode=mode)

    torch._dynamo.reset()
    compiled = torch.compile(resized, backend=assay, dynamic=True, options={"fallback": "error"})
    for width in (6, 9):
        x = torch.arange(2.0 * 3 * width).reshape(2, width, 3).transpose(1, 2)
        assert torch.equal(compiled(x), resized(x)) and compiled(x).stride() == resized(x).stride()


class Resized(nn.Module):
    """A counter of batches, which Dynamo has a symbol for, and an interpolation."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm2d(3)

    def forward(self, x: Tensor) -> Tensor:
        return F.interpolate(self.norm(x), size=(9, 11), mode="bilinear")


def test_interpolation_beside_a_counter_of_batches_stays_whole() -> None:
    torch._dynamo.reset()
    journal.reset()
    torch.manual_seed(0)
    found = []
    module = Resized()
    for run in (torch.compile(module, backend=assay, options={"fallback": "error"}), Resized()):
        x = torch.arange(2 * 3 * 4 * 5.0).reshape(2, 3, 4, 5).sin().requires_grad_()
        run(x).square().sum().backward()
        found.append(x.grad)
    torch.testing.assert_close(found[0], found[1], rtol=1e-4, atol=1e-5)
    called = journal.totals()["fallbacks"]
    assert isinstance(called, dict)
    assert called.keys() == {"aten.upsample_bilinear2d", "aten.upsample_bilinear2d_backward"}
