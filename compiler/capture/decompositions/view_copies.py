"""Views as copies (`aten.permute_copy`): the view, then a contiguous copy of it, which fuses into what reads it."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch.utils import _pytree as pytree

from assay.compiler.torch_compat import Decompositions

aten = torch.ops.aten

VIEWS: dict[str, Callable[..., Any]] = {
    "alias": aten.alias.default,
    "detach": aten.detach.default,
    "diagonal": aten.diagonal.default,
    "expand": aten.expand.default,
    "narrow": torch.narrow,
    "permute": aten.permute.default,
    "select.int": aten.select.int,
    "slice.Tensor": aten.slice.Tensor,
    "split.Tensor": torch.split,
    "split_with_sizes": torch.split_with_sizes,
    "squeeze": aten.squeeze.default,
    "squeeze.dim": aten.squeeze.dim,
    "squeeze.dims": aten.squeeze.dims,
    "t": aten.t.default,
    "transpose.int": aten.transpose.int,
    "unbind.int": aten.unbind.int,
    "unfold": aten.unfold.default,
    "unsqueeze": aten.unsqueeze.default,
    "view": aten.view.default,
}


def _copied(view: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    clone = functools.partial(torch.clone, memory_format=torch.contiguous_format)
    result = pytree.tree_map_only(torch.Tensor, clone, view(*args, **kwargs))
    return list(result) if isinstance(result, tuple) else result


def _operator(name: str) -> torch._ops.OpOverload:
    base, _, overload = name.partition(".")
    return getattr(getattr(aten, f"{base}_copy"), overload or "default")


COPIES: Decompositions = {_operator(name): functools.partial(_copied, view) for name, view in VIEWS.items()}
