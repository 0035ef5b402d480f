"""Runs a program in another dtype than its own lines ask for, so that its rounding errors can be measured.

In float64 the run is the anchor that they are measured from. In float32 it shows what a program in halves is between
its roundings. It also shows what a program in float64 loses to roundings, which nothing wider could tell.

A dispatch mode replaces every floating dtype that an operator is asked for by the other one. It recasts what is
created in its own dtype all the same. Random numbers are drawn in the program's own dtype and then recast, so that
dropout and noise are those of the eager run. A run whose random state ends elsewhere than eager's is no anchor.

What float32 cannot hold stays in float64, and is rounded to float32's precision after each operator. That leaves out
what operators round inside, but nothing overflows or vanishes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map, tree_map_only

from assay.harness.calls.clone import HALVES

NARROW = (torch.float32, torch.float16, torch.bfloat16)
WIDER = {
    torch.float32: HALVES,
    torch.float64: {
        **{dtype: torch.float64 for dtype in NARROW},
        torch.complex64: torch.complex128,
        torch.complex32: torch.complex128,
    },
}
"""By the wide dtype, what takes the place of each narrower one."""
aten = torch.ops.aten


class Recast(TorchDispatchMode):
    """Every dtype in `others` gives way to its entry; random numbers are drawn in `own` and then cast to `other`."""

    def __init__(self, own: torch.dtype, other: torch.dtype, others: Mapping[torch.dtype, torch.dtype]) -> None:
        super().__init__()
        self._own, self._other, self._others = own, other, others

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is aten.native_dropout.default:
            return self._dropout(*args)
        if torch.Tag.nondeterministic_seeded in func.tags:
            return self._drawn(func, args, kwargs)
        if func is aten._grouped_mm.default and args[0].dtype == torch.float64:
            return _grouped_product(*args[:2], *args[2:3], **kwargs)
        if any(isinstance(value, torch.dtype) for value in (*args, *kwargs.values())):
            args, kwargs = tree_map_only(torch.dtype, lambda dtype: self._others.get(dtype, dtype), (args, kwargs))
        result = func(*args, **kwargs)
        return self._recast(result) if isinstance(result, Tensor) else tree_map_only(Tensor, self._recast, result)

    def _drawn(self, func: Any, args: Any, kwargs: Any) -> Any:
        own_generator = any(isinstance(value, torch.Generator) for value in (*args, *kwargs.values()))
        if not (own_generator or func._schema.is_mutable) and any(isinstance(arg, Tensor) for arg in args):
            before = _generators()
            result = func(*args, **kwargs)
            if all(map(torch.equal, _generators(), before)):
                return tree_map_only(Tensor, self._recast, result)  # an attention without dropout draws nothing
            torch.set_rng_state(before[0])
            torch.cuda.set_rng_state_all(before[1:])
        own_args, own_kwargs = tree_map(self._in_own, (args, kwargs))
        if "dtype" in kwargs and kwargs["dtype"] is None and not any(isinstance(arg, Tensor) for arg in args):
            own_kwargs["dtype"] = self._own
        result = func(*own_args, **own_kwargs)
        if func._schema.is_mutable and args:
            return args[0].copy_(result)
        return tree_map_only(Tensor, self._recast, result)

    def _in_own(self, value: Any) -> Any:
        return value.to(self._own) if isinstance(value, Tensor) and value.dtype == self._other else value

    def _dropout(self, tensor: Tensor, p: float, train: bool | None) -> tuple[Tensor, Tensor]:
        _, mask = aten.native_dropout.default(tensor.new_ones(tensor.shape, dtype=self._own), p, train)
        kept = mask if train is not False else torch.ones_like(mask)
        return tensor * kept * (1 / (1 - p) if p < 1 and train is not False else 1.0), mask

    def _recast(self, tensor: Tensor) -> Tensor:
        return tensor.to(self._others[tensor.dtype]) if tensor.dtype in self._others else tensor


def _generators() -> list[Tensor]:
    """The states of the CPU's random numbers and of those of each GPU."""
    return [torch.get_rng_state(), *(torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else ())]


def _grouped_product(
    one: Tensor, other: Tensor, offs: Tensor | None = None, bias: Tensor | None = None, out_dtype: object = None
) -> Tensor:
    """`_grouped_mm` in float64, which ATen does not have: a product for each group.

    Groups share a dimension of a matrix: rows, columns or inner numbers. `offs` says where each group ends in it.
    """
    if offs is None:
        return one @ other if bias is None else one @ other + bias
    ends = offs.tolist()
    begins = [0, *ends[:-1]]
    made = one.new_zeros(_grouped_shape(one, other, len(ends)))
    for group, (begin, end) in enumerate(zip(begins, ends, strict=True)):
        left = one[group] if one.dim() == 3 else one[begin:end] if other.dim() == 3 else one[:, begin:end]
        right = other[group] if other.dim() == 3 else other[:, begin:end] if one.dim() == 3 else other[begin:end]
        place = made[group] if made.dim() == 3 else made[begin:end] if other.dim() == 3 else made[:, begin:end]
        torch.mm(left, right, out=place)
    return made if bias is None else made + bias


def _grouped_shape(one: Tensor, other: Tensor, groups: int) -> tuple[int, ...]:
    shape = one.shape[-2], other.shape[-1]
    return (groups, *shape) if one.dim() == other.dim() == 2 else shape


class Drawn(TorchDispatchMode):
    """Numbers that are drawn are moved, as those that a call is given are."""

    def __init__(self, move: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self._move = move

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if torch.Tag.nondeterministic_seeded in func.tags:
            tree_map_only(Tensor, lambda drawn: drawn.copy_(self._move(drawn)), result)
        return result


class Coarse(TorchDispatchMode):
    """Every result in float64 has the precision of float32, in the range of float64."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if not func.is_view:
            tree_map_only(Tensor, _coarsen, result)
        return result


LOST_BITS = 29
"""Of the 52 bits behind the point of a float64, those that a float32 has not."""


def _coarsen(tensor: Tensor) -> None:
    """Rounds the numbers where they lie, to the nearest."""
    if tensor.is_complex():
        tensor = torch.view_as_real(tensor.conj() if tensor.is_conj() else tensor)
    if tensor.dtype == torch.float64:
        bits = tensor.view(torch.int64)
        rounded = (bits + (1 << LOST_BITS - 1) >> LOST_BITS) << LOST_BITS
        bits.copy_(torch.where(torch.isfinite(tensor), rounded, bits))
