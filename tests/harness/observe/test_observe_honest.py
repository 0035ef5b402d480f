"""torch's own eager and aot_eager backends, which are honest, are `same` on programs of every kind."""

from __future__ import annotations

import dataclasses
import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from assay.harness.calls.clone import Call, nudged
from assay.harness.calls.errors import place_of
from assay.harness.case import Made
from assay.harness.case import case as declare
from assay.harness.observe.observation import Script, observe
from assay.harness.protocol.acts import Act
from assay.harness.run import RunRequest, run_case

Make = Callable[[], Made]


def leaf(*shape: int) -> Tensor:
    return torch.randn(shape, requires_grad=True)


def inner(*shape: int) -> Tensor:
    """A tensor that requires a gradient and is not a leaf, so that it can be written to."""
    return leaf(*shape).clone()


def pointwise() -> Made:
    return (lambda x, y: (x.sin() * y).tanh() / 3), (leaf(5, 4), leaf(4)), {}


def mutated_and_returned() -> Made:
    return (lambda x: x.mul_(2)), (inner(4, 3),), {}


def mutated_through_view() -> Made:
    def program(x: Tensor) -> Tensor:
        x[1:].mul_(3)
        return x.sum(0)

    return program, (inner(4, 3),), {}


def output_is_input() -> Made:
    return (lambda x, y: (x, x + y)), (leaf(4), leaf(4)), {}


def views_of_input() -> Made:
    return (lambda x: (x[1:], x.t(), x.view(-1)[2:7])), (leaf(4, 3),), {}


def two_views_of_one_intermediate() -> Made:
    def program(x: Tensor) -> tuple[Tensor, Tensor]:
        y = x * 2
        return y[:2], y.t()

    return program, (leaf(4, 3),), {}


def interleaved_views() -> Made:
    return (lambda x: (x * 2).unbind(-1)), (leaf(4, 3),), {}


def same_tensor_twice() -> Made:
    x = leaf(4)
    return (lambda a, b: a * b.exp()), (x, x), {}


def overlapping_inputs() -> Made:
    base = torch.randn(8)
    return (lambda a, b: a.add_(1) * b), (base[:6], base[2:]), {}


def leaf_without_gradient() -> Made:
    return (lambda x, y: x.exp()), (leaf(4), leaf(4)), {}


def dropout() -> Made:
    return nn.Sequential(nn.Linear(6, 6), nn.Dropout(0.5), nn.Linear(6, 2)), (torch.randn(5, 6),), {}


def batch_norm() -> Made:
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(144, 3))
    return model, (torch.randn(4, 3, 8, 8).contiguous(memory_format=torch.channels_last),), {}


class Counter(nn.Module):
    """Keeps a count and a running sum in buffers, and ties a parameter to another."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.other = nn.Linear(4, 4), nn.Linear(4, 4, bias=False)
        self.other.weight = self.one.weight
        self.register_buffer("count", torch.zeros((), dtype=torch.int64))
        self.register_buffer("total", torch.zeros(4))

    def forward(self, x: Tensor) -> dict[str, Any]:
        self.count.add_(1)
        self.total = self.total + x.detach().sum(0)
        return {"y": self.other(self.one(x).relu()), "nothing": None, "count": self.count.clone(), "rows": x.shape[0]}


def buffers_and_ties() -> Made:
    return Counter(), (leaf(3, 4),), {}


def integers_and_booleans() -> Made:
    def program(table: Tensor, index: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        return functional.embedding(index, table).masked_fill(mask[:, None], 0.0), index.argmax()

    return program, (leaf(7, 3), torch.randint(7, (5,)), torch.rand(5) > 0.5), {}


def sizes_zero_and_one() -> Made:
    return (lambda a, b, c: (a + b.sum(), c * 2, (b @ c))), (leaf(), leaf(1, 0), leaf(0, 1)), {}


def layouts() -> Made:
    args = (leaf(2, 3, 4, 4), torch.randn(3, 2).t(), torch.randn(3, 1).expand(3, 4))
    return (lambda a, b, c: (a.to(memory_format=torch.channels_last) * 2, b + 1, c * 2, c)), args, {}


def no_grad_inside() -> Made:
    def program(x: Tensor) -> Tensor:
        with torch.no_grad():
            scale = x.abs().max()
        return x / scale

    return program, (leaf(4, 3),), {}


def autocast() -> Made:
    def program(x: Tensor, w: Tensor) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            return functional.softmax(x @ w, -1)

    return program, (leaf(5, 8), leaf(8, 4)), {}


def half_precision() -> Made:
    return nn.Linear(8, 4).bfloat16(), (torch.randn(3, 8).bfloat16(),), {}


def complex_numbers() -> Made:
    x = torch.randn(4, 4, dtype=torch.complex64, requires_grad=True)
    return (lambda x: (x @ x.conj().t()).real), (x,), {}


def wrong_index() -> Made:
    return (lambda x: x[9]), (leaf(4),), {}


def wrong_shapes() -> Made:
    return (lambda x, y: x @ y), (leaf(4, 3), leaf(4, 3)), {}


def raises_in_python() -> Made:
    def program(x: Tensor) -> Tensor:
        if x.shape[0] == 4:
            raise KeyError("four")
        return x

    return program, (leaf(4),), {}


def noise() -> Made:
    return (lambda x: x + torch.randn_like(x) * torch.rand(3)), (leaf(4, 3),), {}


def number_from_tensor() -> Made:
    return (lambda x: (x * 2, float(x.shape[0]) / 3)), (leaf(4, 3),), {}


PROGRAMS: tuple[Make, ...] = (
    pointwise,
    mutated_and_returned,
    mutated_through_view,
    output_is_input,
    views_of_input,
    two_views_of_one_intermediate,
    interleaved_views,
    same_tensor_twice,
    overlapping_inputs,
    leaf_without_gradient,
    dropout,
    batch_norm,
    buffers_and_ties,
    integers_and_booleans,
    sizes_zero_and_one,
    layouts,
    no_grad_inside,
    autocast,
    half_precision,
    complex_numbers,
    wrong_index,
    wrong_shapes,
    raises_in_python,
    noise,
    number_from_tensor,
)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("mode", ["infer", "train"])
@pytest.mark.parametrize("make", PROGRAMS, ids=lambda make: make.__name__)
def test_observe_honest_backend_is_same(make: Make, mode: str, backend: str) -> None:
    result = run_case(declare()(make), mode, backend, RunRequest(timed=False))
    if (make, mode, backend) == (sizes_zero_and_one, "train", "aot_eager"):
        # It gives zeros to what the one result that has a tangent does not reach; eager gives None.
        assert {found.field for found in result.differences} == {"gradient", "hooks"}
        assert {found.path.partition(": ")[2] for found in result.differences} == {"input[2].grad", "input[2]"}
    else:
        assert (result.verdict, result.differences) == ("same", ()), result.detail


def view_made_without_grad() -> Made:
    def program(x: Tensor) -> Tensor:
        with torch.no_grad():
            return x[1:]

    return program, (leaf(4),), {}


def test_observe_finds_what_aot_eager_does_to_views_made_without_grad() -> None:
    """Eager's view is a leaf that requires a gradient, with no history; aot_eager (torch 2.13) replays it with one."""
    result = run_case(declare()(view_made_without_grad), "train", "aot_eager", RunRequest(timed=False))
    assert {found.field for found in result.differences} == {"is_leaf", "has_grad_fn", "error", "freed"}
    assert run_case(declare()(view_made_without_grad), "train", "eager", RunRequest(timed=False)).verdict == "same"


def alone(call: Call, back: int = 0) -> Script:
    return Script((Act(1, back=back),), [call], lambda which: {})


def test_observe_takes_a_tensor_of_a_negative_size() -> None:
    (step,) = observe(alone(Call(lambda x: x.expand(-2, 0, 4), (torch.zeros(0, 4),), {})), "infer", 0)
    assert step.error is None
    assert step.outputs["output"].facts.shape == (-2, 0, 4) and step.outputs["output"].value.numel() == 0


def test_observe_moved_cotangents_reach_the_gradients() -> None:
    def gradient(moved: Callable[[Tensor], Tensor] | None) -> Tensor:
        leaf = torch.ones(64, requires_grad=True)
        script = dataclasses.replace(alone(Call(torch.neg, (leaf,), {}), back=1), moved=moved)
        (step,) = observe(script, "train", 0)
        seen = step.gradients["input[0]"]
        assert seen is not None
        return seen.value

    plain, moved = gradient(None), gradient(nudged(3))
    assert not torch.equal(plain, moved) and torch.allclose(plain, moved, rtol=1e-6)


def test_observe_keeps_no_tensor_of_a_program_that_raised() -> None:
    held: list[weakref.ref[Tensor]] = []

    def program(given: Tensor) -> Tensor:
        between = given + 1
        held.append(weakref.ref(between))
        try:
            return between @ between
        except RuntimeError as error:
            raise ValueError("not a matrix") from error

    gc.disable()
    try:
        (seen,) = observe(alone(Call(program, (torch.ones(3, 4),), {})), "infer", 0)
        assert held[0]() is None
    finally:
        gc.enable()
    assert seen.error is not None and place_of(seen.error.error).startswith(__file__)
