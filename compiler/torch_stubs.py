"""Names of torch's C++ that its stubs leave out or say wrong, each with its type. Imports nothing else of torch."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch._C._dynamo import guards

NewTensor = Callable[[Sequence[int], Sequence[int], torch.dtype], torch.Tensor]
"""Takes a size, strides and a dtype."""
NewLayout = Callable[[torch.Tensor, Sequence[int], Sequence[int], int], torch.Tensor]
"""Takes a tensor, and the size, strides and offset to read its memory with."""

empty_strided_cpu: NewTensor = guards._empty_strided_cpu  # type: ignore[attr-defined]
reinterpret_tensor: NewLayout = guards._reinterpret_tensor  # type: ignore[attr-defined]


def tensor_guards(
    tensors: Sequence[torch.Tensor], sizes: Sequence[Sequence[int | None]], strides: Sequence[Sequence[int | None]]
) -> guards.TensorGuards:
    """What checks later tensors against these, but for the sizes and strides that are None."""
    return guards.TensorGuards(*tensors, dynamic_dims_sizes=sizes, dynamic_dims_strides=strides)  # type: ignore[arg-type]
