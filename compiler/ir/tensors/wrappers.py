"""Wrappers: tensors of a user's own class that hold inner tensors, as `TwoTensor(a, b)` does.

torch calls them traceable wrapper subclasses. A class is one if it has `__tensor_flatten__` and `__tensor_unflatten__`.
Two calls are all that a graph knows of it. What computes with the inner tensors knows nothing of it.

    a = inner_tensor(x, "a")                    an input is taken apart
    y = recipe(size, stride, new_a, new_b)      a result is put together

A recipe holds the class and its context, as they were recorded. An inner tensor may be a wrapper itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeGuard

import torch
from torch._subclasses.functional_tensor import FunctionalTensor
from torch.utils._python_dispatch import is_traceable_wrapper_subclass, is_traceable_wrapper_subclass_type

from assay.compiler.errors import Unsupported

RAGGED = -1
"""In the place of a size that is another for each row, which the class finds by its inner tensors."""


@dataclass(frozen=True, slots=True, eq=False)
class Recipe:
    """What a wrapper is made by: its class, the names of its inner tensors, and the context that it flattens to.

    `held` are the other objects that it flattens to, as the mesh of a `DTensor`. A recipe is called with a size, a
    stride, and the inner tensors in the order of their names.
    """

    kind: Any
    names: tuple[str, ...]
    context: object
    held: Mapping[str, object]

    @staticmethod
    def of(value: torch.Tensor) -> Recipe:
        wrapper: Any = value
        names, context = wrapper.__tensor_flatten__()
        parts = {name: getattr(value, name) for name in names}
        held = {name: part for name, part in parts.items() if not isinstance(part, torch.Tensor)}
        return Recipe(type(value), tuple(name for name in parts if name not in held), context, held)

    def __call__(self, size: Sequence[Any], stride: Sequence[Any], *inner: torch.Tensor) -> torch.Tensor:
        given = {**dict(zip(self.names, inner, strict=True)), **self.held}
        made: torch.Tensor = self.kind.__tensor_unflatten__(given, self.context, torch.Size(size), tuple(stride))
        return made

    @property
    def __name__(self) -> str:
        """What the text of a graph calls it by."""
        return f"make_{self.kind.__name__}"

    def makes(self, value: object) -> bool:
        """Whether a tensor is a wrapper of this class, with these inner tensors and an equal context."""
        if type(value) is not self.kind:
            return False
        wrapper: Any = value
        names, context = wrapper.__tensor_flatten__()
        if self.held:
            return Recipe.of(wrapper).key() == self.key()
        return tuple(names) == self.names and bool(context == self.context)

    def key(self) -> tuple[object, ...]:
        """What two recipes of equal wrappers have in common, for comparison and as a key."""
        return self.kind, self.names, ByValue(self.context), ByValue(self.held)


@dataclass(frozen=True, slots=True)
class ByValue:
    """A context as part of a key: contexts are compared, and need have no hash."""

    context: object

    def __hash__(self) -> int:
        return hash(type(self.context))


def is_wrapper(value: object) -> TypeGuard[torch.Tensor]:
    """Whether a value is a wrapper. What recordings themselves put around tensors is none."""
    return is_traceable_wrapper_subclass(value) and not isinstance(value, FunctionalTensor)


def has_wrapper(types: Iterable[type]) -> bool:
    """Whether one of the classes that take part in a call is that of wrappers."""
    return any(is_traceable_wrapper_subclass_type(kind) and kind is not FunctionalTensor for kind in types)


def is_ragged(size: object) -> bool:
    """Whether a size stands for one of each row, as jagged tensors have it."""
    return isinstance(size, torch.SymInt) and size.node.is_nested_int()


def inner_tensor(wrapper: torch.Tensor, name: str) -> torch.Tensor:
    """An inner tensor of a wrapper, by its name."""
    inner: torch.Tensor = getattr(wrapper, name)
    return inner


def inner_tensors(value: torch.Tensor) -> Iterator[torch.Tensor]:
    """The plain tensors of which a tensor is made: those of a wrapper, of nested ones too, else the tensor itself."""
    if not is_wrapper(value):
        yield value
        return
    for name in Recipe.of(value).names:
        yield from inner_tensors(getattr(value, name))


def with_inner(value: torch.Tensor, function: Callable[[torch.Tensor], torch.Tensor]) -> torch.Tensor:
    """What the function makes of a tensor; of a wrapper, one around what it makes of the inner tensors.

    Raises: Unsupported for a wrapper whose class is put together as another, as a class that only inherits its methods.
    """
    if not is_wrapper(value):
        return function(value)
    recipe = Recipe.of(value)
    made = [with_inner(getattr(value, name), function) for name in recipe.names]
    found = recipe(value.shape, value.stride(), *made)
    if type(found) is not recipe.kind:
        raise Unsupported(f"a {recipe.kind.__qualname__} is put together as a {type(found).__qualname__}")
    return found
