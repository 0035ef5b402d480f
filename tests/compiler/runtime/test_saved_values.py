"""What a node saved, where some of it was written since: what is read of that raises, and nothing is silently wrong."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from assay.compiler.entry.dynamo import assay
from assay.compiler.runtime.higher_order import Order


def test_an_order_raises_for_a_saved_tensor_that_was_written() -> None:
    order = Order(list, list, (("saved", 1),), (None,), (), (0,), frozenset())
    one = torch.ones(3)
    assert order.run((None, one), (), ()) == [one]
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        order.run((one, None), (), ())


def test_an_input_that_is_another_function_since_is_no_root() -> None:
    """Eager still knows what it was made from; the compiled call says that it does not."""
    compiled = torch.compile(lambda x: (x.square(), x.exp()), backend=assay)
    x = torch.ones(3, requires_grad=True)
    inner = x.clone()
    _, wave = compiled(inner)
    inner.mul_(x)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        torch.autograd.grad(wave.sum(), x, create_graph=True)


def third(function: object, is_written: bool) -> Tensor:
    x = torch.full((3,), 0.5, requires_grad=True)
    inner = x.clone()
    _, wave = function(inner)  # type: ignore[operator]
    (slope,) = torch.autograd.grad(wave.sum(), x, create_graph=True)
    (curve,) = torch.autograd.grad(slope.square().sum(), x, create_graph=True)
    if is_written:
        inner.mul_(x)
    (last,) = torch.autograd.grad(curve.sum(), x, create_graph=True)
    (further,) = torch.autograd.grad(last.sum(), x)
    return further


def test_a_root_that_is_another_function_between_two_orders_raises() -> None:
    compiled = torch.compile(lambda x: (x.square(), x.exp()), backend=assay)
    torch.testing.assert_close(third(compiled, False), third(lambda x: (x.square(), x.exp()), False))
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        third(compiled, True)


FREED = r"storage was freed|out of bounds|not allocated"
PROGRAMS = {
    "one kernel": lambda x, w: (x.sin() * w).sum(),
    "norm": lambda x, w: (torch.nn.functional.layer_norm(x, x.shape[-1:]) * w).sum(),
    "view": lambda x, w: (x.view(-1) * w.view(-1)).sin().sum(),
    "product": lambda x, w: (x @ w).relu().sum(),
}


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
@pytest.mark.parametrize("freed", [0, 1])
@pytest.mark.parametrize("name", PROGRAMS)
def test_backward_raises_for_what_was_freed_since(name: str, freed: int, dynamic: bool) -> None:
    """Eager raises, reads other memory or ends the process, by the operator."""
    torch._dynamo.reset()
    compiled = torch.compile(PROGRAMS[name], backend=assay, dynamic=dynamic)
    leaves = [torch.randn(6, 6).requires_grad_() for _ in range(2)]
    copies = [leaf.clone() for leaf in leaves]
    compiled(*copies).backward()
    result = compiled(*copies)
    with torch.no_grad():
        copies[freed].untyped_storage().resize_(0)
    with pytest.raises(RuntimeError, match=FREED):
        result.backward()


@pytest.mark.parametrize("freed", [0, 1])
def test_gradients_of_gradients_raise_for_what_was_freed_since(freed: int) -> None:
    torch._dynamo.reset()
    compiled = torch.compile(lambda x, w: (x.sin() * w.cos()).sum(), backend=assay)
    leaves = [torch.randn(6, 6).requires_grad_() for _ in range(2)]
    copies = [leaf.clone() for leaf in leaves]
    slopes = torch.autograd.grad(compiled(*copies), leaves, create_graph=True)
    with torch.no_grad():
        copies[freed].untyped_storage().resize_(0)
    with pytest.raises(RuntimeError, match=FREED):
        sum(slope.square().sum() for slope in slopes).backward()  # type: ignore[union-attr]
