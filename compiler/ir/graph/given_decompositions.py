"""Decompositions that a caller gives. What they raise is the caller's to see, and no reason to run a call in eager."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

from assay.compiler.torch_compat import Decompositions

OF_TORCH = ("torch.", "assay.")
MARK = "_raised_by_a_given_decomposition"
"""An attribute of an error. Nothing else holds it, as its traceback holds tensors."""


def given_decompositions(table: Decompositions | None) -> Decompositions:
    """A caller's table, none if it is None. Torch's own decompositions stay as they are: they refuse some calls.

    Raises: TypeError for what is no mapping.
    """
    if table is None:
        return {}
    if not isinstance(table, Mapping):
        raise TypeError(f"decompositions is {table!r}, and must be a mapping of operators to functions")
    return {operator: _marking(function) for operator, function in table.items()}


def _marking(function: Callable[..., object]) -> Callable[..., object]:
    """The function, whose errors are marked if it is not torch's."""
    if str(getattr(function, "__module__", "")).startswith(OF_TORCH):
        return function

    @functools.wraps(function)
    def marking(*args: Any, **kwargs: Any) -> object:
        try:
            return function(*args, **kwargs)
        except Exception as error:
            setattr(error, MARK, True)
            raise

    return marking


def raise_what_they_raised(error: BaseException) -> None:
    """Raises: what a caller's decomposition raised, where the error is that or follows from it."""
    found: BaseException | None = error
    while found is not None:
        if hasattr(found, MARK):
            raise found
        found = found.__cause__
