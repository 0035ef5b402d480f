"""Cases in half precision, as models are run on GPUs: inference in bfloat16, training under autocast to it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from assay.harness.case import Case, Made

PRECISIONS = ("float32", "bfloat16")


def at_precision(case: Case, mode: str, precision: str) -> Case:
    """The case as it is, in float32; in bfloat16 for inference, weights and inputs, or under autocast to it."""
    if precision == "float32":
        return case

    def make(size: str) -> Made:
        function, args, kwargs = case.make(size)
        if mode == "train":
            return autocast(function), args, kwargs
        module = function.bfloat16() if isinstance(function, nn.Module) else function
        return module, *pytree.tree_map(_halved, (args, kwargs))

    return replace(case, function=make)


def _halved(value: object) -> object:
    is_float = isinstance(value, Tensor) and value.dtype in (torch.float32, torch.float64)
    return value.bfloat16() if is_float else value  # type: ignore[attr-defined]


class _Autocast(nn.Module):
    """A module whose forward runs under autocast to bfloat16, on the device of its parameters."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        with torch.autocast(next(self.module.parameters()).device.type, torch.bfloat16):
            return self.module(*args, **kwargs)


def autocast(function: Callable[..., Any]) -> Callable[..., Any]:
    """The callable under autocast to bfloat16, on the device that its parameters or its first tensor is on."""
    if isinstance(function, nn.Module):
        return _Autocast(function)

    def run(*args: Any, **kwargs: Any) -> Any:
        first = next(leaf for leaf in pytree.tree_leaves((args, kwargs)) if isinstance(leaf, Tensor))
        with torch.autocast(first.device.type, torch.bfloat16):
            return function(*args, **kwargs)

    return run
