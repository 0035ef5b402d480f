"""Names of the functions that a graph calls, by which another process finds the same functions."""

from __future__ import annotations

import functools
import itertools
import math
import operator
import sys
from types import ModuleType

import torch

from assay.compiler.errors import Unkeyed
from assay.compiler.ir.graph import float_division

BUILT_IN = ("aten", "prims", "prim", "mkldnn")
"""The operators whose meaning torch's version says; others may be defined anew by any process."""
PLACES: tuple[object, ...] = (
    *(operator, math, torch, torch.nn.functional, torch.Tensor, torch.special, torch.fft, torch.linalg),
    *(torch._C, torch._C._nn, torch._C._VariableFunctions),
    float_division,
)
"""Where a function that does not say so itself is looked for."""


PRINT: object = getattr(torch.ops.higher_order, "print", None)
"""The higher-order operator that its arguments tell. Others hold functions, or refer to tables of a process."""


@functools.cache
def target_text(target: object) -> str:
    """The one place where a function of torch or Python is found. Raises: Unkeyed for any other."""
    if isinstance(target, str):
        return target
    if isinstance(target, torch._ops.OpOverload | torch._ops.OpOverloadPacket):
        name = str(target)
        if name.partition(".")[0] not in BUILT_IN:
            raise Unkeyed(f"{name} is an operator of the user's own")
        return f"{type(target).__name__} {name}"
    if isinstance(target, torch._ops.HigherOrderOperator) and target is PRINT:
        return "higher_order print"
    names = [str(getattr(target, said, "")) for said in ("__qualname__", "__name__")]
    own = sys.modules.get(getattr(target, "__module__", None) or "")
    places = (own, *PLACES) if own is not None and _is_known(own) else PLACES
    for place, name in itertools.product(places, names):
        if _found(place, name) is target:
            return f"{getattr(place, '__name__', place)} {name}"
    raise Unkeyed(f"{target!r} is no function of torch's")


def _is_known(module: ModuleType) -> bool:
    return module.__name__.partition(".")[0] in ("torch", "operator", "_operator", "math", "builtins")


def _found(place: object, name: str) -> object:
    for part in name.split("."):
        place = getattr(place, part, None)
    return place
