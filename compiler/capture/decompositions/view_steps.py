"""Views that are recorded as several calls and are one to autograd, as eager makes them by one."""

from __future__ import annotations

from typing import Any

import torch
from torch import fx
from torch.fx.experimental.proxy_tensor import get_proxy_mode, get_proxy_slot

ONE = "assay_one_view"


def mark_as_one(
    target: torch._ops.OpOverload, base: torch.Tensor, arguments: tuple[object, ...], view: torch.Tensor
) -> None:
    """Says of the call that was recorded last for `view` that it and those before it, from `base` on, are one call."""
    mode = get_proxy_mode()
    if mode is None:
        return
    of_base, of_view = (_node_of(value, mode.tracer) for value in (base, view))
    if of_base is not None and of_view is not None:
        of_view.meta[ONE] = of_base, target, arguments


def one_view(call: fx.Node) -> tuple[fx.Node, torch._ops.OpOverload, tuple[object, ...]] | None:
    """What a marked call is a view of, by which operator, with what arguments behind that; None of any other call."""
    return call.meta.get(ONE)


def _node_of(value: torch.Tensor, tracer: Any) -> fx.Node | None:
    slot = get_proxy_slot(value, tracer, None)
    return None if slot is None else slot.proxy.node
