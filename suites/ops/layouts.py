"""The same numbers in other memory: what a layout makes of one tensor, and of every tensor of a sample."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

CHANNELS_LAST = {4: torch.channels_last, 5: torch.channels_last_3d}
Layout = Callable[[Tensor], Tensor]


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


def expanded(tensor: Tensor) -> Tensor:
    """The first element of the first dimension of several, over and over."""
    dim = next((dim for dim, size in enumerate(tensor.shape) if size > 1), None)
    return tensor if dim is None else tensor.narrow(dim, 0, 1).contiguous().expand(tensor.shape)


def rolled(tensor: Tensor) -> Tensor:
    """The last dimension is the outermost in memory."""
    if tensor.dim() < 2:
        return tensor
    return tensor.movedim(-1, 0).contiguous().movedim(0, -1)


def offset(tensor: Tensor) -> Tensor:
    """In rows, beginning at the fourth element of memory."""
    room = tensor.new_zeros(tensor.numel() + 5)
    made = room[3 : 3 + tensor.numel()].view(tensor.shape)
    return made.copy_(tensor)


def cut_out(tensor: Tensor) -> Tensor:
    """A part of a tensor that is longer by one in each dimension."""
    made = tensor.new_zeros([size + 1 for size in tensor.shape])
    for dim, size in enumerate(tensor.shape):
        made = made.narrow(dim, 1, size)
    return made.copy_(tensor)


LAYOUTS: dict[str, Layout] = {
    "transposed": transposed,
    "strided": strided,
    "channels_last": channels_last,
}
ALL_LAYOUTS: dict[str, Layout] = {
    **LAYOUTS,
    "expanded": expanded,
    "rolled": rolled,
    "offset": offset,
    "cut_out": cut_out,
}


def laid_out(value: Any, layout: Layout, with_small: bool = False) -> Any | None:
    """The value with all its tensors laid out so; None where that changes none of them.

    Tensors that share memory with others or with themselves, are not leaves, or are not dense are kept; those of one
    element or none too, unless `with_small`.
    """
    leaves, spec = pytree.tree_flatten(value)
    made = {id(leaf): _leaf(leaf, layout, with_small) for leaf in leaves if isinstance(leaf, Tensor)}
    if all(new is None for new in made.values()):
        return None
    changed = [new if (new := made.get(id(leaf))) is not None else leaf for leaf in leaves]
    return pytree.tree_unflatten(changed, spec)


def _leaf(tensor: Tensor, layout: Layout, with_small: bool) -> Tensor | None:
    if not is_plain(tensor) or (tensor.numel() <= 1 and not with_small):
        return None
    made = layout(tensor.detach())
    if made.stride() == tensor.stride() and made.storage_offset() == tensor.storage_offset():
        return None
    return made.detach().requires_grad_(tensor.requires_grad)


def is_plain(tensor: Tensor) -> bool:
    """Whether a tensor is a dense leaf that is no view."""
    if tensor.layout is not torch.strided or tensor.is_quantized or tensor.is_nested:
        return False
    is_own = tensor._base is None and not tensor.is_conj() and not tensor.is_neg()
    return type(tensor) in (Tensor, torch.nn.Parameter) and tensor.is_leaf and is_own
