"""Gradients that are the tangent itself, or views of it: what autograd gets is the very memory that it gave, as from
eager's nodes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

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


def _joined(x: Tensor, w: Tensor) -> Tensor:
    return torch.cat([x, w.t()], 0)


def _joined_beside_a_product(x: Tensor, w: Tensor) -> Tensor:
    return torch.cat([x.view(2, 3, 4), (w.t() * 2).unsqueeze(0)], 0)


TANGENTS: dict[str, Callable[[Tensor], Tensor]] = {
    "as recorded": torch.ones_like,
    "transposed": lambda y: torch.ones_like(y.transpose(-1, -2).contiguous()).transpose(-1, -2),
    "expanded": lambda y: torch.ones(()).expand_as(y),
    "every other": lambda y: torch.ones(*y.shape, 2)[..., 1],
}


Placed = tuple[tuple[int, ...], int, bool, object]


def _placed(gradients: Sequence[Tensor], tangent: Tensor) -> list[Placed]:
    """Of each gradient how it lies, whether it is the tangent's memory, and its numbers."""
    memory = tangent.untyped_storage().data_ptr()
    return [(g.stride(), g.storage_offset(), g.untyped_storage().data_ptr() == memory, g.tolist()) for g in gradients]


@pytest.mark.parametrize("is_dynamic", [False, True])
@pytest.mark.parametrize(("function", "count"), [(_joined, 2), (_joined_beside_a_product, 1)])
def test_gradients_are_parts_of_the_tangent_where_eagers_are(function: Function, count: int, is_dynamic: bool) -> None:
    """The first `count` gradients are such parts."""

    def parts(run: Function, make: Callable[[Tensor], Tensor]) -> list[Placed]:
        x, w = (torch.ones(*shape, requires_grad=True) for shape in ((6, 4), (4, 3)))
        y = run(x, w)
        tangent = make(y.detach())
        return _placed(torch.autograd.grad(y, [x, w], tangent)[:count], tangent)

    torch._dynamo.reset()
    compiled = torch.compile(function, backend=assay, options={"fallback": "error"}, dynamic=is_dynamic)
    found = {name: parts(compiled, make) for name, make in TANGENTS.items()}
    assert found == {name: parts(function, make) for name, make in TANGENTS.items()}


def test_gradients_are_parts_of_the_tangent_beside_a_result_that_has_none() -> None:
    def both(x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
        return _joined(x, w), x.exp() * w.sum()

    def parts(run: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]) -> list[Placed]:
        x, w = (torch.ones(*shape, requires_grad=True) for shape in ((6, 4), (4, 3)))
        y, _ = run(x, w)
        tangent = torch.ones(()).expand_as(y)
        return _placed(torch.autograd.grad(y, [x, w], tangent), tangent)

    torch._dynamo.reset()
    assert parts(torch.compile(both, backend=assay, options={"fallback": "error"})) == parts(both)


def test_a_tangent_that_is_handed_on_is_not_copied() -> None:
    """A long expanded one would be as long again."""
    x = torch.ones(1 << 12, requires_grad=True)
    w = torch.ones(1 << 12, requires_grad=True)
    torch._dynamo.reset()
    y = torch.compile(PROGRAMS["handed on to both"], backend=assay, options={"fallback": "error"})(x, w)
    tangent = torch.ones(()).expand_as(y)
    gradients = torch.autograd.grad(y, [x, w], tangent)
    assert [each.untyped_storage().nbytes() for each in gradients] == [4, 4]
