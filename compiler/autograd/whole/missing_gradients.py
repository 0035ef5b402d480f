"""`takes_zeros`: which gradients a function's backward is given as zeros where none come.

    ctx.set_materialize_grads(False)      missing gradients are None from here on

The engine fills in those that are missing while it records. Others are missing only when the backward runs, behind a
function that gives None. A context does not tell what its forward has set, so that the setting is noted, where it is
made while backwards are compiled. Where it was made before, the code of forward tells.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any
from weakref import WeakKeyDictionary

NAMES = {"set_materialize_grads", "materialize_grads"}
"""What code that makes the setting names."""

_noted: WeakKeyDictionary[Any, bool] = WeakKeyDictionary()


def noting(setting: Callable[[Any, bool], None]) -> Callable[[Any, bool], None]:
    """`set_materialize_grads`, which notes what it sets."""

    def set_materialize_grads(context: Any, value: bool) -> None:
        setting(context, value)
        _noted[context] = value

    return set_materialize_grads


def takes_zeros(context: Any, gradients: Sequence[object]) -> tuple[bool, ...]:
    """For each gradient whether zeros stand for it where it is missing. What misses while the engine records stays."""
    is_filled = _noted[context] if context in _noted else not _sets(context._forward_cls)
    return tuple([is_filled and gradient is not None for gradient in gradients])


def _sets(function: Any) -> bool:
    """Whether the forward of a function has code that makes the setting."""
    codes = (getattr(inspect.unwrap(part), "__code__", None) for part in (function.forward, function.setup_context))
    return any(code is not None and not NAMES.isdisjoint(code.co_names) for code in codes)
