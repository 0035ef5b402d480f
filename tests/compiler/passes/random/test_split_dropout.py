"""Dropout taken apart: the same numbers, the same bits, and only its mask kept."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn import functional as F

from assay.compiler.autograd.rematerialization.rematerialize import cheapest_split
from assay.compiler.capture.functionalize import capture
from assay.compiler.capture.inputs import Call, fake_leaf
from assay.compiler.ir.graph.roles import Program, Saved, UserInput
from assay.compiler.kernels import dropout
from assay.compiler.passes.random.split_dropout import split_dropout
from tests.compiler.autograd.test_partition import joint_of

aten = torch.ops.aten


def recorded(function: Callable[..., object], *inputs: Tensor) -> Program:
    mode = FakeTensorMode()
    leaves = tuple(fake_leaf(UserInput(index), value, mode) for index, value in enumerate(inputs))
    return capture(Call(lambda args: [function(*args)], leaves, mode), {}).finish()


def drop(x: Tensor) -> Tensor:
    return aten.native_dropout.default(x, 0.3, True)[0] * 2  # type: ignore[no-any-return]


def seeded(function: Callable[[Tensor], object], x: Tensor) -> tuple[object, Tensor]:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(2)
        return function(x), torch.get_rng_state()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("shape", [(7,), (64, 100), (33, 500)])
def test_split_draws_and_rounds_as_the_whole(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    x = torch.randn(shape).to(dtype)
    if x.numel() > 9:
        x.view(-1)[:3] = torch.tensor([float("nan"), float("inf"), -0.0], dtype=dtype)
    program = recorded(drop, x)
    assert split_dropout(program) == 1
    assert not program.module.graph.find_nodes(op="call_function", target=aten.native_dropout.default)
    (ours, after), (eagers, expected) = seeded(lambda x: program.module(x)[0], x), seeded(drop, x)
    torch.testing.assert_close(ours, eagers, rtol=0, atol=0, equal_nan=True)
    assert torch.equal(after, expected)


@pytest.mark.parametrize(
    ("function", "x"),
    [
        (drop, torch.randn(8, 9).t()),
        (lambda x: aten.native_dropout.default(x, 0.3, False)[0] * 2, torch.randn(8)),
        (lambda x: aten.native_dropout.default(x, 1.0, True)[0] * 2, torch.randn(8)),
    ],
    ids=["drawn in the order of memory", "off", "of everything"],
)
def test_others_stay_whole(function: Callable[[Tensor], Tensor], x: Tensor) -> None:
    assert split_dropout(recorded(function, x)) == 0


def test_only_the_mask_is_kept() -> None:
    def layer(x: Tensor, w: Tensor) -> Tensor:
        return F.gelu(aten.native_dropout.default(torch.sin(x @ w), 0.5, True)[0]) @ w

    joint = joint_of(layer, [torch.randn(64, 64, requires_grad=True), torch.randn(64, 64, requires_grad=True)])
    split_dropout(joint)
    made = cheapest_split(joint)
    saved = zip(made.forward.signature.outputs, made.forward.returned, strict=True)
    drawn = [n.meta["val"].dtype for role, n in saved if isinstance(role, Saved) and n.target is aten.bernoulli.p]  # type: ignore[union-attr]
    assert drawn == [torch.bool]


@pytest.mark.parametrize("count", [10, 4096, 100_003])
@pytest.mark.parametrize("p", [0.0, 0.25, 1.0])
def test_masks_are_those_of_bernoulli(count: int, p: float) -> None:
    empty = torch.empty(count, dtype=torch.bool)
    (ours, after), (eagers, expected) = (
        seeded(lambda x: dropout.bernoulli(x, p), empty),
        seeded(lambda x: aten.bernoulli.p(x, p), empty),
    )
    assert torch.equal(ours, eagers) and torch.equal(after, expected)  # type: ignore[arg-type]


@pytest.mark.parametrize("numerics", ["fast", "exact"])
def test_training_with_dropout_is_eagers(numerics: str) -> None:
    model = nn.Sequential(nn.Linear(64, 128), nn.Dropout(0.3), nn.GELU(), nn.Linear(128, 64), nn.Dropout(0.1))
    x = torch.randn(64, 64)
    found = []
    for function in (model, torch.compile(model, backend="assay", options={"numerics": numerics})):
        torch.manual_seed(5)
        y = function(x)
        y.square().sum().backward()
        found.append([y.detach(), *[p.grad for p in model.parameters()], torch.rand(2)])
        model.zero_grad()
    bound = {} if numerics == "fast" else {"rtol": 0, "atol": 0}
    torch.testing.assert_close(found[1], found[0], **bound)  # type: ignore[arg-type]
