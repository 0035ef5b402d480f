"""Options of the command line by group: a command takes each group as one object, and not option by option."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, TypeVar

Decorated = TypeVar("Decorated", bound=Callable[..., Any])
Decorator = Callable[[Any], Any]


def together(*decorators: Decorator) -> Decorator:
    """Several decorators as one, in the order in which they would be written."""

    def decorate(function: Decorated) -> Decorated:
        for decorator in reversed(decorators):
            function = decorator(function)
        return function

    return decorate


def group(name: str, kind: type[Any], *options: Decorator) -> Decorator:
    """Options that a command takes as one argument `name` of a `kind`, a dataclass with a field for each of them."""
    fields = [field.name for field in dataclasses.fields(kind)]

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(command)
        def gathered(**given: Any) -> Any:
            own = {field: given.pop(field) for field in fields}
            return command(**given, **{name: kind(**own)})

        return together(*options)(gathered)  # type: ignore[no-any-return]

    return decorate
