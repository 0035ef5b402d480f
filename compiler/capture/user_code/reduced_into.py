"""Reductions into an `out=` of another dtype, in which eager computes them.

sum(x, 0, out=y), and prod, mean, nansum, nanmean  ->  sum(x, 0, dtype=y.dtype, out=y)
var(x, 0, out=y), and std                          ->  var(x.to(y.dtype), 0, out=y)
all(x, 0, out=y), and any, of bytes on a CPU       ->  all(x.to(y.dtype), 0, out=y)
logsumexp(x, 0, out=y)                             ->  with the sum of the exponentials in the dtype of y

A recording would reduce in the dtype of `x` and cast what comes of that. Digits are lost so, or sums of whole parts
become the whole part of a sum.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

aten = torch.ops.aten
SUMS = (torch.sum, torch.prod, torch.nansum, aten.sum, aten.prod, aten.nansum)
MEANS = (torch.mean, torch.nanmean, aten.mean, aten.nanmean)
DEVIATIONS = (torch.var, torch.std, aten.var, aten.std)
TESTS = (torch.all, torch.any, aten.all, aten.any)
EXPONENTIALS = (torch.logsumexp, torch.special.logsumexp, aten.logsumexp, aten.special_logsumexp)
REDUCTIONS = frozenset((*SUMS, *MEANS, *DEVIATIONS, *TESTS, *EXPONENTIALS))


def reduced_into(func: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Tensor | None:
    """What the call gives, computed as eager does; None where it is no such call."""
    out = kwargs.get("out")
    if not isinstance(out, Tensor):  # asked first: Dynamo, which goes through branches of loops, cannot read `func`
        return None
    kind = getattr(func, "overloadpacket", func)
    if kind not in REDUCTIONS:
        return None
    named = {name: value for name, value in kwargs.items() if name not in ("input", "self")}
    x, *rest = (*(kwargs[name] for name in ("input", "self") if name in kwargs), *args)
    if not isinstance(x, Tensor) or x.dtype is out.dtype:
        return None
    if kind in EXPONENTIALS:
        return _summed_exponentials(x, *rest, **named)
    cast = _cast(kind, x, out, named)
    return None if cast is None else func(cast, *rest, **named)


def _cast(kind: Any, x: Tensor, out: Tensor, named: dict[str, Any]) -> Tensor | None:
    """What is reduced in the place of `x`, or None where eager reduces as a recording does. Sets `dtype` by name."""
    is_floating = x.is_floating_point() or x.is_complex()
    if kind in TESTS:
        return x.to(out.dtype) if out.dtype is torch.uint8 and x.device.type == "cpu" else None
    if kind in DEVIATIONS:
        return x.to(_wide_as(out.dtype, x)) if is_floating and _is_real_or_alike(out, x) else None
    if named.get("dtype") is not None or (kind in MEANS and not is_floating):
        return None
    named["dtype"] = out.dtype
    return x


def _is_real_or_alike(out: Tensor, x: Tensor) -> bool:
    return out.is_floating_point() or (out.is_complex() and x.is_complex())


def _wide_as(dtype: torch.dtype, x: Tensor) -> torch.dtype:
    """The dtype, made complex where `x` is."""
    return dtype.to_complex() if x.is_complex() else dtype


def _summed_exponentials(x: Tensor, dim: Any, keepdim: bool = False, *, out: Tensor) -> Tensor:
    """`logsumexp` in eager's steps, of which the first is the greatest element, or 0 where that is infinite."""
    x = x if x.is_floating_point() or x.is_complex() else x.to(torch.get_default_dtype())
    greatest = (x.real if x.is_complex() else x).amax(dim, keepdim=True)
    greatest = greatest.masked_fill(greatest.abs() == torch.inf, 0)
    total = (x - greatest).exp().sum(dim, keepdim=keepdim, dtype=out.dtype).log()
    return torch.add(total, greatest.view(total.shape), out=out)
