"""A wrapper (`ir/tensors/wrappers.py`), held to what a graph was recorded for: an input, or the tangent of a result.

The class of a tangent may bring it into the recorded form, by `__coerce_same_metadata_as_tangent__`. What is of
another class or context even then is an error that names both. Its inner tensors are laid out as the kernels take them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from assay.compiler.ir.tensors.wrappers import Recipe, is_wrapper
from assay.compiler.runtime.call import laid_out_as
from assay.compiler.runtime.expected_inputs import Expected, ExpectedInputs


@dataclass(frozen=True, slots=True)
class ExpectedWrapper:
    """One tangent as the graph takes it. `quick` is the quick answer for inner tensors like those last looked at."""

    recipe: Recipe
    inner: tuple[Expected | ExpectedWrapper, ...]
    quick: ExpectedInputs | None

    @staticmethod
    def of(value: Tensor) -> ExpectedWrapper:
        recipe = Recipe.of(value)
        inner = tuple(_expected(getattr(value, name)) for name in recipe.names)
        plain = [each for each in inner if isinstance(each, Expected)]
        return ExpectedWrapper(recipe, inner, ExpectedInputs(tuple(plain)) if len(plain) == len(inner) else None)

    def is_met_by(self, value: Tensor) -> bool:
        """Whether a tensor has the recorded form already."""
        if not self.recipe.makes(value):
            return False
        given = (getattr(value, name) for name in self.recipe.names)
        return all(want.is_met_by(inner) for want, inner in zip(self.inner, given, strict=True))

    def __call__(self, tangent: Tensor) -> Tensor:
        """The tangent in the recorded form. Raises: RuntimeError where it has no such form."""
        value = self._of_class(tangent)
        given = [getattr(value, name) for name in self.recipe.names]
        if self.quick is not None and (self.quick.check(*given) or self.quick.look(*given)):
            return value
        fitted = list(self._fitted(given))
        if all(old is new for old, new in zip(given, fitted, strict=True)):
            return value
        return self.recipe(value.shape, value.stride(), *fitted)

    def _of_class(self, tangent: Tensor) -> Tensor:
        if self.recipe.makes(tangent):
            return tangent
        kind, context = self.recipe.kind, self.recipe.context
        value = _coerced(tangent, kind, context)
        if not self.recipe.makes(value):
            raise _other_class(f"{kind.__qualname__} with context {context!r}", tangent)
        return value  # type: ignore[return-value]

    def _fitted(self, given: list[Tensor]) -> Iterator[Tensor]:
        for name, want, value in zip(self.recipe.names, self.inner, given, strict=True):
            found = want(value) if isinstance(want, ExpectedWrapper) else want.fitted(value)
            if found is None:
                kind = self.recipe.kind.__qualname__
                raise RuntimeError(f"the gradient of class {kind} has another {name} than it was compiled for")
            yield found


def as_plain(tangent: Tensor) -> Tensor:
    """The tangent of a plain result of a graph with wrappers. Raises: RuntimeError for one of another class.

    Such a graph computes with inner tensors. A wrapper would stand for one of them, and others would be put around it.
    """
    if not is_wrapper(tangent):
        return tangent
    value = _coerced(tangent, Tensor, None)
    if not isinstance(value, Tensor) or is_wrapper(value):
        raise _other_class("Tensor", tangent)
    return value


def _coerced(tangent: Tensor, kind: type, context: object) -> object:
    """What a tangent's class makes of it where a class and a context were recorded; None where it makes nothing."""
    coerce: Callable[..., Any] | None = getattr(tangent, "__coerce_same_metadata_as_tangent__", None)
    if coerce is None:
        return None
    return coerce(context) if type(tangent) is kind else coerce(context, kind)


def _other_class(wanted: str, tangent: Tensor) -> RuntimeError:
    return RuntimeError(
        f"the backward was compiled for a gradient of class {wanted}, and is given {_described(tangent)}; give it the "
        "former, or have the latter's class define __coerce_same_metadata_as_tangent__"
    )


def _expected(value: Tensor) -> Expected | ExpectedWrapper:
    return ExpectedWrapper.of(value) if is_wrapper(value) else Expected.of(value, laid_out_as(value))


def _described(value: Tensor) -> str:
    if not is_wrapper(value):
        return f"one of class {type(value).__qualname__}"
    return f"one of class {type(value).__qualname__} with context {Recipe.of(value).context!r}"


Form = tuple[Any, ...]
"""Size and stride of a tensor, and the forms of its inner tensors."""


def form_of(value: Tensor) -> Form:
    """The sizes of a wrapper, for zeros like it."""
    inner = [getattr(value, name) for name in Recipe.of(value).names] if is_wrapper(value) else []
    return value.shape, value.stride(), *map(form_of, inner)


def zeros_around(value: Tensor) -> Callable[[Form], Tensor]:
    """Makes zeros of a form, in the class of a tangent."""
    if not is_wrapper(value):
        return _zeros_of(value.dtype, value.device)
    recipe = Recipe.of(value)
    makers = [zeros_around(getattr(value, name)) for name in recipe.names]

    def zeros(form: Form) -> Tensor:
        size, stride, *inner = form
        return recipe(size, stride, *(make(each) for make, each in zip(makers, inner, strict=True)))

    return zeros


def _zeros_of(dtype: torch.dtype, device: torch.device) -> Callable[[Form], Tensor]:
    return lambda form: torch.empty_strided(form[0], form[1], dtype=dtype, device=device).zero_()
