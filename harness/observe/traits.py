"""Of a call's tensors, the dtypes and the layouts: by these a night's verdicts are counted, too."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

CHANNELS_LAST = {4: torch.channels_last, 5: torch.channels_last_3d}


@dataclass(frozen=True, slots=True)
class Traits:
    """Each once, in the order of their names."""

    dtypes: tuple[str, ...] = ()
    layouts: tuple[str, ...] = ()


def traits_of(tensors: Iterable[Tensor]) -> Traits:
    """The dtypes and the layouts that there are among the tensors."""
    found = list(tensors)
    dtypes = {str(tensor.dtype).removeprefix("torch.") for tensor in found}
    return Traits(tuple(sorted(dtypes)), tuple(sorted({layout_of(tensor) for tensor in found})))


def layout_of(tensor: Tensor) -> str:
    """`contiguous`, `channels_last`, `transposed` (dense, in another order), `expanded` (elements that share memory),
    `strided` (with memory left out); or the name of a layout without strides."""
    if tensor.is_nested or tensor.layout is not torch.strided:
        return "nested" if tensor.is_nested else str(tensor.layout).removeprefix("torch.")
    if tensor.is_contiguous():
        return "contiguous"
    if tensor.dim() in CHANNELS_LAST and tensor.is_contiguous(memory_format=CHANNELS_LAST[tensor.dim()]):
        return "channels_last"
    dims = sorted((stride, size) for stride, size in zip(tensor.stride(), tensor.shape, strict=True) if size > 1)
    if dims[0][0] == 0:
        return "expanded"
    dense = 1
    for stride, size in dims:
        if stride != dense:
            return "strided"
        dense *= size
    return "transposed"
