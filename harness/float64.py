"""Runs a program in a wider dtype than its own lines ask for: in float64, the anchor that rounding errors are measured
from; in float32, what a program in halves is between its roundings.

A dispatch mode replaces every narrower floating dtype that an operator is asked for by the wide one, and widens what
is created narrow all the same. Random numbers are drawn in the program's own dtype and then widened, so that dropout
and noise are those of the eager run; a run whose random state ends elsewhere than eager's is no anchor.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map, tree_map_only

NARROW = (torch.float32, torch.float16, torch.bfloat16)
HALVES = {torch.float16: torch.float32, torch.bfloat16: torch.float32, torch.complex32: torch.complex64}
WIDER = {
    torch.float32: HALVES,
    torch.float64: {
        **{dtype: torch.float64 for dtype in NARROW},
        torch.complex64: torch.complex128,
        torch.complex32: torch.complex128,
    },
}
"""By the wide dtype, what takes the place of each narrower one."""
aten = torch.ops.aten


class Widened(TorchDispatchMode):
    """Everything in `wide`; random numbers as they are drawn in `narrow`."""

    def __init__(self, narrow: torch.dtype, wide: torch.dtype) -> None:
        super().__init__()
        self._narrow, self._wide, self._wider = narrow, wide, WIDER[wide]

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is aten.native_dropout.default:
            return self._dropout(*args)
        if torch.Tag.nondeterministic_seeded in func.tags:
            return self._drawn(func, args, kwargs)
        args, kwargs = tree_map_only(torch.dtype, lambda dtype: self._wider.get(dtype, dtype), (args, kwargs))
        return tree_map_only(Tensor, self._widened, func(*args, **kwargs))

    def _drawn(self, func: Any, args: Any, kwargs: Any) -> Any:
        narrow_args, narrow_kwargs = tree_map(self._narrowed, (args, kwargs))
        if "dtype" in kwargs and kwargs["dtype"] is None and not any(isinstance(arg, Tensor) for arg in args):
            narrow_kwargs["dtype"] = self._narrow
        result = func(*narrow_args, **narrow_kwargs)
        if func._schema.is_mutable and args:
            return args[0].copy_(result)
        return tree_map_only(Tensor, self._widened, result)

    def _narrowed(self, value: Any) -> Any:
        return value.to(self._narrow) if isinstance(value, Tensor) and value.dtype == self._wide else value

    def _dropout(self, tensor: Tensor, p: float, train: bool | None) -> tuple[Tensor, Tensor]:
        _, mask = aten.native_dropout.default(tensor.new_ones(tensor.shape, dtype=self._narrow), p, train)
        kept = mask if train is not False else torch.ones_like(mask)
        return tensor * kept * (1 / (1 - p) if p < 1 and train is not False else 1.0), mask

    def _widened(self, tensor: Tensor) -> Tensor:
        return tensor.to(self._wider[tensor.dtype]) if tensor.dtype in self._wider else tensor
