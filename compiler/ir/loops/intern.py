"""Interned types: two equal values are one object, so that equality and hashing cost nothing however deep they are."""

from __future__ import annotations

import threading
from typing import Any
from weakref import WeakValueDictionary

_LOCK = threading.RLock()
_TABLE: WeakValueDictionary[tuple[Any, ...], Any] = WeakValueDictionary()


def _key(value: object) -> object:
    """What tells two field values apart: 1, 1.0 and True are three constants, and so are 0.0 and -0.0."""
    if isinstance(value, (int, float)):
        return type(value), repr(value) if isinstance(value, float) else value
    return value


class Interned(type):
    """The metaclass of frozen dataclasses (with `eq=False`) whose instances are shared by structure.

    Cost: most values are there already, and found by their fields before anything is made.
    """

    __match_args__: tuple[str, ...]

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        names: tuple[str, ...] = cls.__match_args__
        if kwargs or len(args) != len(names):
            made = super().__call__(*args, **kwargs)
            args = tuple(getattr(made, name) for name in names)
        key = (cls, *map(_key, args))
        found = _TABLE.get(key)
        if found is not None:
            return found
        made = super().__call__(*args)
        with _LOCK:
            return _TABLE.setdefault(key, made)


class Shared(metaclass=Interned):
    """The base of interned dataclasses; copies and unpickled values are the interned object again."""

    __slots__ = ()

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), tuple(getattr(self, name) for name in type(self).__match_args__)
