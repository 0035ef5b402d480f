"""Eager whose operators compute in float64, and round each result once: right, and with other last bits than eager's.

A right compiler rounds in other places than eager. The other controls have eager's bits, so that no rule about numbers
is ever asked. This one asks it of every tensor.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only

from assay.harness.calls.clone import widened
from assay.harness.judge.kinks import is_kinked

ABOUT_THE_DTYPE = frozenset("nextafter frexp ldexp nan_to_num".split())
"""Operators of ATen that do something else in another dtype, by name."""


class RoundedOnce(TorchDispatchMode):
    """Operators that only compute have the numbers of float64, rounded. All else of their results is as ever."""

    supports_higher_order_operators = True

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        if not isinstance(func, torch._ops.OpOverload):
            return result
        into = [leaf for leaf in tree_leaves(result) if isinstance(leaf, Tensor)]
        if _only_computes(func, args, kwargs) and _has_own_memory(into, (args, kwargs)):
            for tensor, value in zip(into, _in_float64(func, args, kwargs), strict=False):
                if tensor.is_floating_point() and tensor.shape == value.shape and not _is_folded(tensor):
                    tensor.copy_(value)
        return result


def _only_computes(func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> bool:
    """Whether an operator does nothing but compute, without a step, and in any dtype alike. A user's own may do all
    sorts of things, such as draw numbers, and is called once."""
    schema = func._schema
    read = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
    return (
        func.namespace == "aten"
        and not schema.is_mutable
        and all(returned.alias_info is None for returned in schema.returns)
        and torch.Tag.nondeterministic_seeded not in func.tags
        and schema.name.partition("::")[2] not in ABOUT_THE_DTYPE
        and not any(isinstance(leaf, torch.dtype) for leaf in tree_leaves((args, kwargs)))
        and not is_kinked(func, args, kwargs)
        and not _has_numbers_beyond(args, kwargs, read)
        and any(tensor.is_floating_point() for tensor in read)
        and all(type(tensor) is Tensor and tensor.layout == torch.strided for tensor in read)
    )


def _has_numbers_beyond(args: Sequence[Any], kwargs: dict[str, Any], read: Sequence[Tensor]) -> bool:
    """Whether a Python number is infinite in the dtype of a tensor that is read, and is none in float64."""
    most = min((torch.finfo(tensor.dtype).max for tensor in read if tensor.is_floating_point()), default=math.inf)
    numbers = (leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, float))
    return any(most < abs(number) < math.inf for number in numbers)


def _has_own_memory(into: Sequence[Tensor], given: Any) -> bool:
    """Whether no result shares its memory with what the operator was given."""
    taken = {leaf.untyped_storage().data_ptr() for leaf in tree_leaves(given) if isinstance(leaf, Tensor)}
    return not any(type(one) is not Tensor or one.untyped_storage().data_ptr() in taken for one in into)


def _is_folded(tensor: Tensor) -> bool:
    """Whether a result has more elements than its memory, as one in the strides of an operand that overlaps itself."""
    return tensor.numel() * tensor.element_size() > tensor.untyped_storage().nbytes()


def _in_float64(func: Any, args: Any, kwargs: Any) -> list[Tensor]:
    """The operator's results in float64; none where it does not take that."""
    try:
        result = func(*tree_map_only(Tensor, widened, args), **tree_map_only(Tensor, widened, kwargs))
    except (RuntimeError, NotImplementedError):
        return []
    return [leaf for leaf in tree_leaves(result) if isinstance(leaf, Tensor)]
