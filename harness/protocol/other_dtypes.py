"""The other dtype in which a program may be called: float64 for one in float32, and float32 for any other.

A caller converts the arguments and all that the program holds, as `module.double()` does, and later converts them back.
A program is left in its own dtype where the other one would show nothing:

- Eager does not take the other dtype.
- The program draws random numbers. Those of another dtype are others.
- The program makes numbers of a narrower dtype on its way, as an RMS norm in float32 does. Its own float64 run is then
  too far from it to judge by.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

MOST_BITS = 64
Dtypes = Mapping[torch.dtype, torch.dtype]
OTHER: Dtypes = {
    torch.float32: torch.float64,
    torch.complex64: torch.complex128,
    torch.float64: torch.float32,
    torch.complex128: torch.complex64,
    torch.float16: torch.float32,
    torch.bfloat16: torch.float32,
}


def other_dtypes(convert: Callable[[Tensor], Tensor] | None) -> Dtypes:
    """What each dtype becomes in an act in the other one, in a run whose numbers `convert` makes of the program's own.

    Nothing becomes of any where `convert` gives them another dtype: a run in float64 has one dtype for all acts.
    """
    if convert is None:
        return OTHER
    kept = [dtype for dtype in OTHER if convert(torch.zeros(1, dtype=dtype)).dtype == dtype]
    return {dtype: OTHER[dtype] for dtype in kept} if len(kept) == len(OTHER) else {}


def in_other(tensor: Tensor, dtypes: Dtypes = OTHER) -> Tensor:
    """A copy of a tensor in its other dtype, or in its own, where it has no other."""
    return tensor.detach().to(dtypes.get(tensor.dtype, tensor.dtype), copy=True)


def least_bits(tensors: Iterable[Tensor]) -> int:
    """How many bits the narrowest floating number has of tensors that are converted."""
    floating = [tensor for tensor in tensors if tensor.is_floating_point()]
    return min((torch.finfo(OTHER.get(tensor.dtype, tensor.dtype)).bits for tensor in floating), default=MOST_BITS)


class Narrowest(TorchDispatchMode):
    """Notes how many bits the narrowest floating number has that an operator makes."""

    def __init__(self) -> None:
        super().__init__()
        self.bits = MOST_BITS

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        made = [leaf for leaf in tree_leaves(result) if isinstance(leaf, Tensor) and leaf.is_floating_point()]
        self.bits = min([self.bits, *(torch.finfo(leaf.dtype).bits for leaf in made)])
        return result
