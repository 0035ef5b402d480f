"""A functional graph, node by node: in its own dtypes, or in float64 to see what rounding did."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import fx
from torch.utils import _pytree as pytree

FLOATS = (torch.float16, torch.bfloat16, torch.float32)


def evaluate(module: fx.GraphModule, inputs: Sequence[object], *, in_float64: bool = False) -> list[Any]:
    """What the graph returns for `inputs`, as one flat list.

    With `in_float64`, every floating input, constant and dtype argument is float64, so the result is the graph's
    meaning without float32's rounding.
    """
    given = [_widen(value) for value in inputs] if in_float64 else list(inputs)
    runner = _Widened(module) if in_float64 else fx.Interpreter(module)
    with torch.no_grad():
        returned = runner.run(*given)
    return list(returned) if isinstance(returned, (list, tuple)) else [returned]


class _Widened(fx.Interpreter):
    """Runs each call with floating dtypes replaced by float64."""

    def call_function(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        args, kwargs = pytree.tree_map(_widen_dtype, (args, kwargs))
        return super().call_function(target, args, kwargs)

    def get_attr(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return _widen(super().get_attr(target, args, kwargs))


def _widen(value: object) -> object:
    if isinstance(value, torch.Tensor) and value.dtype in FLOATS:
        wide = torch.empty_strided(value.shape, value.stride(), dtype=torch.float64, device=value.device)
        return wide.copy_(value)
    return value


def _widen_dtype(value: object) -> object:
    return torch.float64 if value in FLOATS else value
