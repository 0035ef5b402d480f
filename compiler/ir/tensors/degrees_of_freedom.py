"""What eager warns of where a variance has no degrees of freedom: fakes tell it once, and our kernels never.

    std(x of 1 element), var(x of 3, correction=5)     ->     "std(): degrees of freedom is <= 0. ..."

So the recording warns where eager does, and each call repeats what its recording warned of.
"""

from __future__ import annotations

import warnings
from typing import Any

import torch

from assay.compiler.ir.tensors.layout.strides import is_known

aten = torch.ops.aten
VARIANCES = {
    aten.var.correction: "var",
    aten.std.correction: "std",
    aten.var_mean.correction: "var_mean",
    aten.std_mean.correction: "std_mean",
}
SAID = (
    "{}(): degrees of freedom is <= 0. Correction should be strictly less than the reduction factor "
    "(input numel divided by output numel)."
)
"""Eager's own words, which a user's filter of warnings may look for."""


def warn_of_freedom(func: object, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Warns where eager does. That sizes or a correction make it so is a guard."""
    if (name := VARIANCES.get(func)) is None:  # type: ignore[call-overload]
        return
    x, dims = args[0], args[1] if len(args) > 1 else kwargs.get("dim")
    correction = 1 if kwargs.get("correction") is None else kwargs["correction"]
    if all(map(is_known, x.shape)) and bool(_reduced(x, dims) <= correction):
        warnings.warn(SAID.format(name), stacklevel=1)


def _reduced(x: torch.Tensor, dims: list[int] | None) -> int | torch.SymInt:
    """How many elements make one of the result; 0 where it has none."""
    chosen = {dim % max(x.dim(), 1) for dim in dims or range(x.dim())}
    count: int | torch.SymInt = 1
    for dim, size in enumerate(x.shape):
        if bool(size == 0):
            return 0
        count = count * size if dim in chosen else count
    return count
