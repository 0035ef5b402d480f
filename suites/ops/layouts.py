"""The same numbers in other memory: what a layout makes of one tensor, and of every tensor of a sample."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

CHANNELS_LAST = {4: torch.channels_last, 5: torch.channels_last_3d}


def transposed(tensor: Tensor) -> Tensor:
    """The dimensions in memory in reverse order."""
    order = list(reversed(range(tensor.dim())))
    return tensor.permute(order).contiguous().permute(order)


def strided(tensor: Tensor) -> Tensor:
    """Every other element of memory, beginning at the second."""
    room = tensor.new_zeros((*tensor.shape, 2))
    room[..., 1] = tensor
    return room[..., 1]


def channels_last(tensor: Tensor) -> Tensor:
    """The second dimension is the innermost in memory, where the rank allows."""
    return tensor.contiguous(memory_format=CHANNELS_LAST[tensor.dim()]) if tensor.dim() in CHANNELS_LAST else tensor


LAYOUTS: dict[str, Callable[[Tensor], Tensor]] = {
    "transposed": transposed,
    "strided": strided,
    "channels_last": channels_last,
}


def laid_out(value: Any, layout: Callable[[Tensor], Tensor]) -> Any | None:
    """The value with all its tensors laid out so; None where that changes none of them.

    Tensors that share memory with others or with themselves, are not leaves, or are not dense are kept.
    """
    leaves, spec = pytree.tree_flatten(value)
    made = {id(leaf): _leaf(leaf, layout) for leaf in leaves if isinstance(leaf, Tensor)}
    if all(new is None for new in made.values()):
        return None
    changed = [new if (new := made.get(id(leaf))) is not None else leaf for leaf in leaves]
    return pytree.tree_unflatten(changed, spec)


def _leaf(tensor: Tensor, layout: Callable[[Tensor], Tensor]) -> Tensor | None:
    if not _is_plain(tensor):
        return None
    made = layout(tensor.detach())
    if made.stride() == tensor.stride() and made.storage_offset() == tensor.storage_offset():
        return None
    return made.detach().requires_grad_(tensor.requires_grad)


def _is_plain(tensor: Tensor) -> bool:
    if tensor.layout is not torch.strided or tensor.is_quantized or tensor.is_nested or tensor.numel() == 0:
        return False
    is_own = tensor._base is None and not tensor.is_conj() and not tensor.is_neg()
    return type(tensor) in (Tensor, torch.nn.Parameter) and tensor.is_leaf and is_own and tensor.numel() > 1
