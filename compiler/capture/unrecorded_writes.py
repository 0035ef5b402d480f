"""Notices calls that torch does not record as the writes that they are.

Functionalization loses some writes of `out=` (`linalg.matrix_rank`): the graph would return what `out` held before. It
loses what a program assigns to `tensor.data`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree

from assay.compiler.errors import Unsupported
from assay.compiler.ir.tensors.in_place import version

SET_DATA = torch.Tensor.data.__set__  # type: ignore[attr-defined]


class UnrecordedWrites(TorchFunctionMode):
    """While it is entered, a call that leaves the version of one of its `out=` as it was raises Unsupported. So does an
    assignment to `data` in another dtype, as `module.to(dtype)` makes. `assign_data` is given those to inputs."""

    def __init__(self, assign_data: Callable[[torch.Tensor, torch.Tensor], bool]) -> None:
        super().__init__()
        self.assign_data = assign_data

    def __torch_function__(
        self, func: Callable[..., Any], types: Sequence[type], args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:  # fmt: skip
        if func == SET_DATA and args[0].dtype != args[1].dtype:
            raise Unsupported(f"the program gives a tensor of {args[0].dtype} data of {args[1].dtype}")
        if func == SET_DATA and self.assign_data(*args):
            return None
        out = (kwargs or {}).get("out")
        if out is None:
            return func(*args, **kwargs or {})
        given = [leaf for leaf in pytree.tree_leaves(out) if isinstance(leaf, torch.Tensor)]
        before = [version(tensor) for tensor in given]
        result = func(*args, **kwargs or {})
        if any(version(tensor) == old for tensor, old in zip(given, before, strict=True)):
            raise Unsupported(
                f"the program gives out= to {getattr(func, '__name__', func)}, whose write is not recorded"
            )
        return result
