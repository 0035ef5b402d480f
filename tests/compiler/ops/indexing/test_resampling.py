"""Upsampling in kernels of our own, as devices other than the CPU have it, beside eager."""

from __future__ import annotations

import math

import pytest
import torch
from torch.nn import functional as F

from assay.compiler import journal
from assay.compiler.entry.dynamo import assay
from assay.compiler.ir.loops.index import Int
from assay.compiler.ir.loops.kernel import Allocate
from assay.compiler.machine import number
from assay.compiler.ops.indexing.resampling import bilinear
from assay.compiler.ops.registry import OPERATORS, Kind, Op
from assay.compiler.passes.split_log_softmax import split_log_softmax
from assay.compiler.schedule.fuse import MOST_INLINED
from tests.lowering import assert_same, executable, planned, traced
from tests.stated_numbers import state

SIZES = {
    "larger": ((2, 3, 5, 7), {"size": (12, 9)}),
    "smaller": ((2, 3, 9, 12), {"size": (4, 5)}),
    "twice": ((1, 2, 4, 6), {"scale_factor": 2.0}),
    "a factor that is kept": ((1, 2, 7, 5), {"scale_factor": 1.7, "recompute_scale_factor": False}),
    "from one element": ((2, 1, 1, 1), {"size": (3, 4)}),
    "to one element": ((2, 1, 6, 5), {"size": (1, 1)}),
    "the same": ((1, 2, 3, 4), {"size": (3, 4)}),
}


@pytest.fixture
def everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    name = "aten.upsample_bilinear2d"
    monkeypatch.setitem(OPERATORS, name, Op(name, Kind.indexing, bilinear))


@pytest.mark.usefixtures("everywhere")
@pytest.mark.parametrize("aligns", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("case", SIZES)
def test_bilinear_upsampling_is_eagers(case: str, dtype: torch.dtype, aligns: bool) -> None:
    shape, size = SIZES[case]

    def resized(x: torch.Tensor) -> torch.Tensor:
        return F.interpolate(x, mode="bilinear", align_corners=aligns, **size)  # type: ignore[arg-type]

    torch._dynamo.reset()
    journal.reset()
    torch.manual_seed(0)
    compiled = torch.compile(resized, backend=assay, dynamic=False, options={"fallback": "error"})
    for layout in (torch.contiguous_format, torch.channels_last):
        x = torch.randn(shape, dtype=dtype).contiguous(memory_format=layout)
        expected, found = resized(x), compiled(x)
        assert found.stride() == expected.stride()
        wide = resized(x.double())
        places = 2 * max(shape[2:])  # a place is as exact as its dtype, and a neighbour as different as the largest two
        bound = (4 + places) * torch.finfo(dtype).eps * x.double().abs().amax()
        assert (found.double() - wide).abs().amax() <= bound
    assert not journal.totals()["fallbacks"]


@pytest.mark.usefixtures("everywhere")
def test_infinities_and_nans_spread_as_in_eager() -> None:
    x = torch.tensor([[[[float("inf"), 1.0], [float("nan"), -2.0]]]])

    def resized(x: torch.Tensor) -> torch.Tensor:
        return F.interpolate(x, size=(4, 4), mode="bilinear")

    torch._dynamo.reset()
    compiled = torch.compile(resized, backend=assay, options={"fallback": "error"})
    torch.testing.assert_close(compiled(x), resized(x), equal_nan=True)


def test_a_cpu_leaves_bilinear_upsampling_to_aten() -> None:
    torch._dynamo.reset()
    journal.reset()
    x = torch.randn(1, 2, 3, 4)
    compiled = torch.compile(lambda x: F.interpolate(x, size=(5, 6), mode="bilinear") + 1, backend=assay)
    torch.testing.assert_close(compiled(x), F.interpolate(x, size=(5, 6), mode="bilinear") + 1)
    assert journal.totals()["fallbacks"] == {"aten.upsample_bilinear2d": 1}


@pytest.mark.usefixtures("everywhere")
def test_the_loss_of_a_picture_made_larger_stores_nothing_of_its_size_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """An element of the larger picture is made from four of the smaller: there, cheaper to make again than to load."""

    def loss(x: torch.Tensor, target: torch.Tensor) -> tuple[torch.Tensor]:
        larger = torch.ops.aten.upsample_bilinear2d.default(x.permute(0, 3, 1, 2), (16, 16), False)
        return (torch.log_softmax(larger.float(), 1).gather(1, target).mean(),)

    x = torch.randn(2, 4, 4, 20, dtype=torch.bfloat16)
    target = torch.randint(0, 20, (2, 1, 16, 16))
    program = traced(loss, x, target, mode="real")
    assert split_log_softmax(program) == 1
    monkeypatch.setitem(MOST_INLINED, "cpu", MOST_INLINED["cuda"])
    state(monkeypatch, spread_work_cpu=number("spread_work_cuda"))
    schedule = planned(program)
    made = [step.size for step in schedule.steps if isinstance(step, Allocate)]
    sizes = [math.prod(each.value for each in size if isinstance(each, Int)) for size in made]
    assert sizes and max(sizes) <= target.numel()
    (found,) = executable(schedule)([x, target])
    assert_same(found, loss(x, target)[0], "the loss")
