"""The callable as it is: what every other stage is held against."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def eager(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """`function(*args, **kwargs)`."""
    return function(*args, **kwargs)
