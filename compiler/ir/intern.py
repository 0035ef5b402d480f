"""Interned types: two equal values are one object, so that equality and hashing cost nothing however deep they are."""

from __future__ import annotations

import threading
from typing import Any
from weakref import WeakValueDictionary

_LOCK = threading.RLock()
_TABLE: WeakValueDictionary[tuple[Any, ...], Any] = WeakValueDictionary()


def _key(value: object) -> object:
    """What tells two field values apart: 1, 1.0 and True are three constants, and so are 0.0 and -0.0."""
    return (type(value), repr(value)) if isinstance(value, bool | int | float) else value


class Interned(type):
    """The metaclass of frozen dataclasses (with `eq=False`) whose instances are shared by structure."""

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        made = super().__call__(*args, **kwargs)
        key = (cls, *(_key(getattr(made, name)) for name in cls.__match_args__))  # type: ignore[attr-defined]
        with _LOCK:
            return _TABLE.setdefault(key, made)


class Shared(metaclass=Interned):
    """The base of interned dataclasses; copies and unpickled values are the interned object again."""

    __slots__ = ()

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), tuple(getattr(self, name) for name in self.__match_args__)  # type: ignore[attr-defined]
