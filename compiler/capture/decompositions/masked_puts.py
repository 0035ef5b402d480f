"""Elements that a mask chooses, written by what does not depend on how many they are: a choice, element by element.

    index_put(x, [mask], value of one element)     ->     where(mask, value, x)

Only data tells the size of what is put otherwise, and ATen puts it.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.fx.experimental.symbolic_shapes import guard_or_false

from assay.compiler.capture.decompositions.wide_sums import put
from assay.compiler.torch_compat import Decompositions

aten = torch.ops.aten


def put_or_choose(x: Tensor, indices: Sequence[Tensor | None], values: Tensor, accumulate: bool = False) -> Tensor:
    """`index_put`."""
    start = next((place for place, index in enumerate(indices) if index is not None), 0)
    mask = indices[start] if len(indices) == start + 1 else None
    if accumulate or mask is None or not _is_mask_of(mask, x, start):
        return put(x, indices, values, accumulate)
    behind = x.dim() - start - mask.dim()
    own = values.shape[: max(values.dim() - behind, 0)]  # before the dimensions behind the mask
    if values.dtype is not x.dtype or (own and not guard_or_false(own[-1] == 1)) or x.device != mask.device:
        return put(x, indices, values, accumulate)
    ones = [1] * mask.dim() if own else []
    value = values.reshape([*own[:-1], *ones, *values.shape[len(own) :]])
    return torch.where(mask.reshape([*mask.shape, *[1] * behind]), value, x)


def _is_mask_of(mask: Tensor, x: Tensor, start: int) -> bool:
    """Whether it chooses among the elements of the dimensions from `start` on. Eager refuses other sizes."""
    sizes = x.shape[start : start + mask.dim()]
    is_mask = mask.dtype is torch.bool and 0 < mask.dim() == len(sizes)
    return is_mask and all(guard_or_false(one == other) for one, other in zip(mask.shape, sizes, strict=True))


PUTS: Decompositions = {aten.index_put.default: put_or_choose}
