"""Gradients that are the tangent itself: what autograd gets is the very tensor that it gave, as from eager's nodes."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from assay.compiler.entry.dynamo import assay

Function = Callable[[Tensor, Tensor], Tensor]
PROGRAMS: dict[str, Function] = {
    "handed on to both": lambda x, w: x + w,
    "handed on, and computed with": lambda x, w: x + w * 3,
}


def seen(function: Function, is_expanded: bool) -> list[tuple[object, ...]]:
    """Each gradient on its way to a view of a leaf: its strides, whether it is the tangent; and what the leaves get."""
    leaf, x, found, at = torch.ones(4, 1, requires_grad=True), torch.ones(1, 4, requires_grad=True), [], []
    w = leaf.t()
    y = function(x, w)
    y.register_hook(lambda g: at.append(g.data_ptr()))  # type: ignore[no-untyped-call]
    for value in (x, w):
        value.register_hook(lambda g: found.append((g.stride(), g.data_ptr() == at[0], g.tolist())))
    if is_expanded:
        y.sum().backward()
    else:
        y.backward(torch.arange(4.0).view(1, 4))
    assert leaf.grad is not None and x.grad is not None
    return [*found, (leaf.grad.stride(), leaf.grad.tolist()), (x.grad.stride(), x.grad.tolist())]


@pytest.mark.parametrize("is_expanded", [False, True])
@pytest.mark.parametrize("name", PROGRAMS)
def test_gradients_are_the_tangent_where_eagers_are(name: str, is_expanded: bool) -> None:
    torch._dynamo.reset()
    compiled = torch.compile(PROGRAMS[name], backend=assay, options={"fallback": "error"})
    assert seen(compiled, is_expanded) == seen(PROGRAMS[name], is_expanded)


def test_a_tangent_that_is_handed_on_is_not_copied() -> None:
    """A long expanded one would be as long again."""
    x = torch.ones(1 << 12, requires_grad=True)
    w = torch.ones(1 << 12, requires_grad=True)
    torch._dynamo.reset()
    y = torch.compile(PROGRAMS["handed on to both"], backend=assay, options={"fallback": "error"})(x, w)
    tangent = torch.ones(()).expand_as(y)
    gradients = torch.autograd.grad(y, [x, w], tangent)
    assert [each.untyped_storage().nbytes() for each in gradients] == [4, 4]
