"""Tangents of results with inner tensors: brought into the recorded form, or refused with both classes named."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.testing._internal.two_tensor import TwoTensor

from assay.compiler.entry.aot import aot_function
from assay.compiler.runtime.expected_wrappers import ExpectedWrapper, as_plain, form_of, zeros_around


class Tagged(Tensor):
    """A tensor with a tag, which gradients may be given another of, and that plain tensors cannot stand for."""

    def __new__(cls, inner: Tensor, tag: str) -> Tagged:
        made: Tagged = torch.Tensor._make_wrapper_subclass(  # type: ignore[attr-defined]
            cls, inner.shape, strides=inner.stride(), dtype=inner.dtype
        )
        return made

    def __init__(self, inner: Tensor, tag: str) -> None:
        self.inner, self.tag = inner, tag

    def __tensor_flatten__(self) -> tuple[list[str], str]:
        return ["inner"], self.tag

    @staticmethod
    def __tensor_unflatten__(parts: dict[str, Tensor], tag: str, _size: Any, _stride: Any) -> Tagged:
        return Tagged(parts["inner"], tag)

    def __coerce_same_metadata_as_tangent__(self, tag: str | None, kind: type | None = None) -> Tensor | None:
        if kind is not None or tag is None:
            return None
        return Tagged(self.inner, tag)

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        tag = next(each.tag for each in args if isinstance(each, Tagged))
        bare = [each.inner if isinstance(each, Tagged) else each for each in args]
        return Tagged(func(*bare, **kwargs or {}), tag)


def ones(*shape: int) -> Tensor:
    return TwoTensor(torch.ones(shape), torch.ones(shape))


def test_a_tangent_as_it_was_recorded_is_taken_as_it_is() -> None:
    expected, tangent = ExpectedWrapper.of(ones(2, 3)), ones(2, 3)
    assert expected(tangent) is tangent
    assert expected(tangent) is tangent  # by the quick check
    assert expected.is_met_by(tangent)
    assert not expected.is_met_by(torch.ones(2, 3))


def test_inner_tensors_are_laid_out() -> None:
    expanded = TwoTensor(torch.ones(1).expand(2, 3), torch.ones(1).expand(2, 3))
    fitted: Any = ExpectedWrapper.of(ones(2, 3))(expanded)
    assert fitted.a.stride() == (3, 1)
    nested: Any = ExpectedWrapper.of(TwoTensor(ones(2, 3), ones(2, 3)))(TwoTensor(expanded, expanded))
    assert nested.b.a.stride() == (3, 1)


def test_other_classes_are_refused() -> None:
    expected = ExpectedWrapper.of(ones(3))
    with pytest.raises(RuntimeError, match=r"gradient of class TwoTensor .* is given one of class Tensor;"):
        expected(torch.ones(3))
    with pytest.raises(RuntimeError, match="is given one of class Tagged with context 'left'"):
        expected(Tagged(torch.ones(3), "left"))
    with pytest.raises(RuntimeError, match="of class TwoTensor has another a"):
        expected(TwoTensor(torch.ones(3).double(), torch.ones(3).double()))


def test_a_class_brings_its_tangent_into_the_recorded_context() -> None:
    expected = ExpectedWrapper.of(Tagged(torch.ones(3), "left"))
    found: Any = expected(Tagged(torch.full((3,), 2.0), "right"))
    assert (found.tag, found.inner.tolist()) == ("left", [2.0, 2.0, 2.0])


def test_zeros_have_the_form_of_a_result() -> None:
    zeros: Any = zeros_around(ones(2, 3))(form_of(ones(4, 3)))
    assert type(zeros) is TwoTensor
    assert torch.equal(zeros.b, torch.zeros(4, 3))


def test_backward_takes_and_refuses_tangents() -> None:
    compiled = aot_function(lambda x: x * 2, lambda graph, _: graph)
    x: Any = ones(3).requires_grad_()
    with pytest.raises(RuntimeError, match="is given one of class Tensor"):
        compiled(x).backward(torch.ones(3))
    assert x.grad is None
    compiled(x).backward(TwoTensor(torch.ones(1).expand(3), torch.ones(1).expand(3)))
    assert torch.equal(x.grad.a, torch.full((3,), 2.0))


def test_a_wrapper_in_the_place_of_a_plain_tangent_is_taken_as_in_eager() -> None:
    compiled = aot_function(lambda x: x.sin() * 2, lambda graph, _: graph)
    x, y = (torch.ones(3).requires_grad_() for _ in range(2))
    compiled(x).backward(ones(3))
    (y.sin() * 2).backward(ones(3))
    ours: Any = x.grad
    eagers: Any = y.grad
    torch.testing.assert_close(ours.a, eagers.a)


@pytest.mark.parametrize("is_partial", [False, True])
def test_a_wrapper_for_a_plain_result_of_a_graph_with_wrappers_is_refused(is_partial: bool) -> None:
    """Its inner tensors would be computed with those of others, and be put into a wrapper of wrappers."""

    def f(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        return x * 2 / (y + 3), y + y

    x, y = ones(3).requires_grad_(), torch.ones(3, requires_grad=True)
    first, second = aot_function(f, lambda graph, _: graph)(x, y)
    result = second * ones(3) if is_partial else first + second
    with pytest.raises(RuntimeError, match=r"gradient of class Tensor, and is given one of class TwoTensor"):
        result.sum().backward()
    assert x.grad is None and y.grad is None


def test_a_wrapper_for_the_result_of_a_plain_graph_is_taken() -> None:
    x = torch.linspace(0, 1, 3).requires_grad_()
    (aot_function(lambda x: x.sin(), lambda graph, _: graph)(x) * ones(3)).sum().backward()
    assert isinstance(x.grad, TwoTensor)
    torch.testing.assert_close(x.grad.a, x.detach().cos())


def test_a_class_brings_a_tangent_into_that_of_plain_tensors() -> None:
    class Waiting(Tagged):
        def __coerce_same_metadata_as_tangent__(self, tag: str | None, kind: type | None = None) -> Tensor | None:
            return self.inner if kind is Tensor else None

    inner = torch.ones(3)
    assert as_plain(Waiting(inner, "left")) is inner
    assert as_plain(inner) is inner
