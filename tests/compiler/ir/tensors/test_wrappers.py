"""Recipes of tensors with inner tensors, and whether they overlap inside."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.testing._internal.two_tensor import TwoTensor

from assay.compiler.errors import Unsupported
from assay.compiler.ir.tensors.layout.overlap import layout_key, overlap_test, share_inner
from assay.compiler.ir.tensors.wrappers import (
    ByValue,
    Recipe,
    has_wrapper,
    inner_tensor,
    inner_tensors,
    is_ragged,
    is_wrapper,
    with_inner,
)


def pair(*shape: int) -> Tensor:
    return TwoTensor(torch.randn(shape), torch.randn(shape))


class Meshed(Tensor):
    """A tensor that flattens to an object, too, and has a context without a hash."""

    def __new__(cls, inner: Tensor, mesh: object, context: object) -> Meshed:
        made: Meshed = torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype)  # type: ignore[attr-defined]
        return made

    def __init__(self, inner: Tensor, mesh: object, context: object) -> None:
        self.inner, self.mesh, self.context = inner, mesh, context

    def __tensor_flatten__(self) -> tuple[list[str], object]:
        return ["inner", "mesh"], self.context

    @staticmethod
    def __tensor_unflatten__(parts: dict[str, Any], context: object, _size: Any, _stride: Any) -> Meshed:
        return Meshed(parts["inner"], parts["mesh"], context)

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        raise NotImplementedError(func)


def test_a_recipe_puts_together_what_it_was_read_off() -> None:
    value = pair(2, 3)
    recipe = Recipe.of(value)
    made = recipe(value.shape, value.stride(), *(inner_tensor(value, name) for name in recipe.names))
    assert recipe.names == ("a", "b")
    assert recipe.makes(made)
    assert not recipe.makes(torch.ones(2, 3))
    assert inner_tensor(made, "a") is inner_tensor(value, "a")


def test_a_recipe_holds_what_is_no_tensor() -> None:
    value = Meshed(torch.ones(3), "mesh", {"rows": [1, 2]})
    recipe = Recipe.of(value)
    assert (recipe.names, recipe.held) == (("inner",), {"mesh": "mesh"})
    assert recipe.makes(recipe((3,), (1,), torch.zeros(3)))
    assert not recipe.makes(Meshed(torch.ones(3), "another mesh", {"rows": [1, 2]}))
    assert not recipe.makes(Meshed(torch.ones(3), "mesh", {"rows": [1, 3]}))
    assert hash(recipe.key()) == hash(Recipe.of(Meshed(torch.ones(3), "mesh", {"rows": [1, 2]})).key())
    assert ByValue([1]) == ByValue([1]) != ByValue([2])


def test_inner_tensors_of_nested_wrappers() -> None:
    value = TwoTensor(pair(3), pair(3))
    assert len(list(inner_tensors(value))) == 4
    doubled = with_inner(value, lambda inner: inner * 2)
    for one, other in zip(inner_tensors(doubled), inner_tensors(value), strict=True):
        assert torch.equal(one, other * 2)
    assert is_wrapper(value)
    assert not is_wrapper(torch.nn.Parameter(torch.ones(3)))
    assert has_wrapper([Tensor, TwoTensor])
    assert not has_wrapper([Tensor])


def test_a_class_that_is_put_together_as_another() -> None:
    class Other(TwoTensor):
        pass

    with pytest.raises(Unsupported, match="put together as a TwoTensor"):
        with_inner(Other(torch.ones(3), torch.ones(3)), torch.clone)


def test_ragged_sizes() -> None:
    rows = torch.nested.nested_tensor([torch.ones(2, 4), torch.ones(3, 4)], layout=torch.jagged)
    assert [is_ragged(size) for size in rows.shape] == [False, True, False]


def test_overlaps_inside() -> None:
    value, whole = pair(3), torch.randn(4)
    assert not overlap_test((0,), False)([value, whole])
    assert overlap_test((0,), False)([value, inner_tensor(value, "b")])
    assert overlap_test((0,), False)([TwoTensor(whole[:2], whole[:2]), torch.randn(2)])
    assert not overlap_test((1,), False)([TwoTensor(whole[:2], whole[:2]), torch.randn(2)])
    assert share_inner([value, inner_tensor(value, "b")])
    assert not share_inner([whole, whole])


def test_layouts_of_wrappers_tell_what_is_inside() -> None:
    assert layout_key([pair(3)]) == layout_key([pair(3)])
    assert layout_key([pair(3)]) != layout_key([torch.randn(3)])
    assert layout_key([pair(3)]) != layout_key([TwoTensor(pair(3), pair(3))])
