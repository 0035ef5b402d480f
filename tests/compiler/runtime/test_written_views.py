"""Writes of views that autograd records: versions, errors, kept gradients, gradients of gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from assay.compiler.entry.dynamo import assay
from assay.compiler.runtime.written_views import part_of_base

Function = Callable[..., Any]


def write(view: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    view.mul_(weight)
    return view, view * 3


def is_same(one: Tensor, other: Tensor) -> bool:
    return torch.equal(one, other) and torch.equal(one.signbit(), other.signbit())


def both() -> tuple[Function, Function]:
    return write, torch.compile(write, backend=assay, options={"fallback": "error"})


def given() -> tuple[Tensor, Tensor, Tensor]:
    x = torch.arange(1.0, 9.0).requires_grad_()
    return x, x.clone(), torch.tensor([2.0, -0.0, 3.0], requires_grad=True)


def test_only_a_part_of_another_tensor_is_taken_apart() -> None:
    x, base, _ = given()
    assert part_of_base(base, True) is base and part_of_base(x, True) is x
    wider = base[:4].view(torch.int32)
    assert part_of_base(wider, True) is wider
    lazy = torch.complex(base, base)[1:3].conj()
    assert part_of_base(lazy, True) is lazy
    view = base[1:3]
    version, history = base._version, base.grad_fn
    part = part_of_base(view, True)
    assert torch.equal(part, view) and part.data_ptr() == view.data_ptr()
    assert base._version == version and base.grad_fn is not history
    (gradient,) = torch.autograd.grad(base, x, torch.full((8,), -0.0))
    assert bool(gradient.signbit().all()), "a part that gets no gradient leaves that of the base as it is"


def test_a_write_grows_the_version_by_one_and_its_history_is_a_write_of_the_base() -> None:
    for function in both():
        _, base, weight = given()
        view = base[1:4]
        function(view, weight)
        assert base._version == view._version == 1
        assert type(base.grad_fn).__name__ == "CopySlices" and not base.is_leaf


def test_what_torch_refuses_to_write_is_left_as_it_was() -> None:
    for function in both():
        _, base, weight = given()
        first, _ = base.split(3)[:2]
        with pytest.raises(RuntimeError, match="is a view and is being modified inplace"):
            function(first, weight)
        assert torch.equal(base, torch.arange(1.0, 9.0))


@pytest.mark.parametrize("create_graph", [False, True])
def test_gradients_and_their_gradients_of_a_written_view(create_graph: bool) -> None:
    found = []
    for function in both():
        x, base, weight = given()
        _, read = function(base[1:4], weight)
        total = base.square().sum() + read.sin().sum()
        first = torch.autograd.grad(total, [x, weight], create_graph=create_graph)
        more = torch.autograd.grad(sum(g.square().sum() for g in first), [x, weight]) if create_graph else ()
        found.append((*first, *more))
    torch.testing.assert_close(*found)


def test_a_batch_of_tangents_goes_through_a_written_view() -> None:
    found = []
    for function in both():
        x, base, weight = given()
        function(base[1:4], weight)
        found.append(torch.autograd.grad(base, [x, weight], torch.eye(8), is_grads_batched=True))
    torch.testing.assert_close(*found)


def test_a_kept_gradient_of_the_base_is_that_of_its_new_value() -> None:
    compiled = torch.compile(write, backend=assay)
    kept = []
    for function in (write, compiled):
        _, base, weight = given()
        base.retain_grad()
        _, read = function(base[1:4], weight)
        (base.sum() + read.sum()).backward()
        kept.append(base.grad)
    assert kept[0] is not None and kept[1] is not None and torch.equal(*kept)


def test_zeros_beside_the_view_are_eagers_whichever_result_has_a_gradient() -> None:
    for use in (["base"], ["read"], ["base", "read"]):
        gradients = []
        for function in both():
            x, base, weight = given()
            of = {"base": base, "read": function(base[1:4], weight)[1]}
            results = [of[name] for name in use]
            gradients += torch.autograd.grad(results, x, [torch.full_like(result, -0.0) for result in results])
        assert is_same(*gradients), use


def test_sizes_that_change_make_no_new_call_for_the_base() -> None:
    compiled = torch.compile(lambda view: view.mul_(-0.0), backend=assay, dynamic=True, options={"fallback": "error"})
    for size in (8, 9, 11, 30):
        x = torch.arange(float(size)).requires_grad_()
        base = x.clone()
        compiled(base[2:])
        (gradient,) = torch.autograd.grad(base, x, torch.full((size,), -0.0))
        assert gradient.signbit().tolist() == [True, True] + [False] * (size - 2)
