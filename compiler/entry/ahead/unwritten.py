"""`disable_functionalization=True`: the graph has the calls of the program as they are made.

A program that writes nothing has the same graph either way. In the graph of one that writes, calls that write would
stand as they are: no such graph is made.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from assay.compiler.errors import Unsupported
from assay.compiler.torch_compat import has_registered_effect

Result = TypeVar("Result")


def refusing_writes(function: Callable[..., Result]) -> Callable[..., Result]:
    """The function, which raises Unsupported for a call in it that writes memory or has an ordered effect."""

    @functools.wraps(function)
    def run(*args: Any, **kwargs: Any) -> Result:
        with _Unwritten():
            return function(*args, **kwargs)

    return run


class _Unwritten(TorchDispatchMode):
    supports_higher_order_operators = True

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if isinstance(func, torch._ops.OpOverload) and (func._schema.is_mutable or has_registered_effect(func)):
            raise Unsupported(f"disable_functionalization=True is not taken for a program that writes, as by {func}")
        return func(*args, **kwargs or {})
