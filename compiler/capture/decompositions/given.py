"""Decompositions that a caller gives. What they raise is the caller's to see, and no reason to run a call in eager."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from assay.compiler.torch_compat import Decompositions

OF_TORCH = ("torch.", "assay.")


@dataclass(slots=True)
class GivenDecomposition:
    """A function of the caller's. `raised` is what it raised last."""

    function: Callable[..., object]
    raised: Exception | None = field(default=None)

    def __call__(self, *args: Any, **kwargs: Any) -> object:
        try:
            return self.function(*args, **kwargs)
        except Exception as error:
            self.raised = error
            raise


def given_decompositions(table: Decompositions | None) -> Decompositions:
    """A caller's table, none if it is None. Torch's own decompositions stay as they are: they refuse some calls.

    Raises: TypeError for what is no mapping.
    """
    if table is None:
        return {}
    if not isinstance(table, Mapping):
        raise TypeError(f"decompositions is {table!r}, and must be a mapping of operators to functions")
    return {operator: _watched(function) for operator, function in table.items()}


def _watched(function: Callable[..., object]) -> Callable[..., object]:
    is_torchs = str(getattr(function, "__module__", "")).startswith(OF_TORCH)
    return function if is_torchs or isinstance(function, GivenDecomposition) else GivenDecomposition(function)


def raise_what_they_raised(table: Decompositions) -> None:
    """Raises: what one of a caller's decompositions raised, if one did."""
    for function in table.values():
        if isinstance(function, GivenDecomposition) and function.raised is not None:
            error, function.raised = function.raised, None
            raise error
