"""Which writes eager refuses: by the dtypes of their arguments, and by how their memory overlaps.

Which writes to overlapping memory an operator refuses is known to its kernel alone. So a write whose target overlaps
itself or another argument is tried once on real tensors that lie alike.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import _disable_current_modes

from assay.compiler.errors import Unsupported
from assay.compiler.ir.tensors.layout.lie_apart import lie_apart
from assay.compiler.ir.tensors.layout.shared_bytes import share_a_byte
from assay.compiler.ir.tensors.layout.strides import (
    extent,
    has_symbols,
    hint,
    hints,
    is_known,
    may_overlap,
    overlaps_itself,
    placed,
)
from assay.compiler.ir.tensors.mutating_operators import written_by

LAUNCHES = "assay_triton"
"""The namespace of operators that launch Triton kernels of the user's (`capture/user_code/triton_kernels.py`)."""


def check_dtype(func: torch._ops.OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Looks at writes by operators that compute in a wider kind of numbers than the written tensor holds.

    Raises: what eager raises if it refuses to cast the result: recorded, the write is a copy, which casts anything.
    """
    if func is torch.ops.aten.complex.out:  # which knows one dtype for each of its arguments
        refuse_as_eager(func, args, kwargs)
    if torch.Tag.pointwise not in func.tags:
        return
    others = [_kind(value) for value in pytree.arg_tree_leaves(*args, **kwargs)]
    kinds = [_kind(target) for target in written_by(func, args, kwargs)]
    if any(kind < max(others) for kind in kinds):
        refuse_as_eager(func, args, kwargs)
    elif func.namespace == "aten" and any(kind < _REAL for kind in kinds):  # which may compute in reals all the same
        _refuse_cast(func, args, kwargs)


def check_rows(func: torch._ops.OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Looks at what operators of the user's write: torch tells which rows a view is by a division by their strides.

    Raises: Unsupported where there are no elements, and one of these strides is zero.
    Source: suites/upstream_bugs/custom_operator_writes_no_rows.py
    """
    if func.namespace == "aten":
        return
    for value in written_by(func, args, kwargs):
        base = value if value._base is None else value._base
        if is_known(value.numel()) and value.numel() == 0 and 0 in hints(base.stride()):
            raise Unsupported(f"the program writes no elements of an expanded tensor by {func}")


def _refuse_cast(func: torch._ops.OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Raises: what eager raises if it refuses to cast the result, on one element of each argument's dtype and rank."""
    with _disable_current_modes(), torch.random.fork_rng(devices=[]):
        one_args, one_kwargs = pytree.tree_map_only(torch.Tensor, _one_element, (args, kwargs))
        try:
            func(*one_args, **one_kwargs)
        except RuntimeError as error:
            if "can't be cast to the desired output type" in str(error):
                raise


def _one_element(value: torch.Tensor) -> torch.Tensor:
    return torch.ones((1,) * value.dim(), dtype=value.dtype, device=value.device)


_REAL = 2
"""The kind of floating numbers."""


def _kind(value: object) -> int:
    """Bools, integers, reals and complex numbers, from 0 on; what is no number is nothing."""
    if isinstance(value, torch.Tensor):
        dtype = value.dtype
        return 3 if dtype.is_complex else _REAL if dtype.is_floating_point else int(dtype is not torch.bool)
    kinds = ((bool, 0), ((int, torch.SymInt), 1), ((float, torch.SymFloat), _REAL), (complex, 3))
    return next((kind for types, kind in kinds if isinstance(value, types)), -1)


def check_memory(func: torch._ops.OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Looks at writes whose target may overlap itself or another argument.

    Raises: what eager raises if the operator refuses such memory; Unsupported for a write to memory that overlaps
    itself, of which functionalization knows no inverse.
    """
    others = [v for v in pytree.arg_tree_leaves(*args, **kwargs) if isinstance(v, torch.Tensor)]
    targets = list(written_by(func, args, kwargs))
    if func.namespace not in ("aten", "prims") and any(_is_of_another_kind(target) for target in targets):
        raise Unsupported(f"the program calls {func}, which writes a view of another dtype than its base's")
    is_self_overlapping = any(overlaps_itself(target) for target in targets)
    storages = {id(target): target.untyped_storage()._cdata for target in targets}
    is_shared = any(
        other.untyped_storage()._cdata in storages.values() for other in others if id(other) not in storages
    )
    is_tried = is_self_overlapping or is_shared or len(set(storages.values())) < len(storages)
    pairs = [(target, other) for target in targets for other in others if other is not target]
    is_tried = is_tried and (is_self_overlapping or not all(_are_apart_for_any_data(*pair) for pair in pairs))
    if is_tried and func.namespace != LAUNCHES:  # a launch refuses nothing, and writes wherever its numbers say
        refuse_as_eager(func, args, kwargs)
    if is_shared and any(_overlap(*pair) and placed(pair[0]) != placed(pair[1]) for pair in pairs):
        raise Unsupported(f"the program reads what it writes in one call of {func}, element by element")
    is_random = torch.Tag.nondeterministic_seeded in func.tags
    if is_random and not all(target.is_contiguous() and target._base is None for target in targets):
        raise Unsupported(f"the program fills a view, or memory in another order, by {func}, which draws in its order")
    if is_self_overlapping and torch.Tag.inplace_view not in func.tags:
        raise Unsupported(f"the program writes memory that overlaps itself, by {func}")


def _overlap(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether two tensors share memory; with symbolic sizes, whether they are not shown to lie apart."""
    if has_symbols(one) or has_symbols(other):
        return not lie_apart(one, other) and may_overlap(one, other)
    return may_overlap(one, other) and share_a_byte(one, other)


def _are_apart_for_any_data(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether two tensors, of which one has a size that only the data tells, are shown to share no memory."""
    if one.untyped_storage()._cdata != other.untyped_storage()._cdata:
        return True
    numbers = [number for value in (one, other) for number in (*value.shape, *value.stride())]
    return not all(map(is_known, numbers)) and lie_apart(one, other)


def _is_of_another_kind(value: torch.Tensor) -> bool:
    base = value._base
    return base is not None and (base.dtype, base.is_conj(), base.is_neg()) != (
        value.dtype,
        value.is_conj(),
        value.is_neg(),
    )


def refuse_as_eager(func: torch._ops.OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Raises: what eager raises if the operator refuses the dtypes of its arguments, or how their memory overlaps."""
    with _disable_current_modes(), torch.random.fork_rng(devices=[]):
        memory: dict[int, torch.Tensor] = {}
        real_args, real_kwargs = pytree.tree_map_only(torch.Tensor, lambda v: _laid_alike(v, memory), (args, kwargs))
        try:
            func(*real_args, **real_kwargs)
        except RuntimeError as error:
            if str(error).startswith(("unsupported operation", "result type", "Expected object of scalar type")):
                raise


def _laid_alike(value: torch.Tensor, memory: dict[int, torch.Tensor]) -> torch.Tensor:
    """A real tensor of zeros with the layout of `value`, over one piece of memory for each storage."""
    storage = value.untyped_storage()
    sizes, strides, offset = hints(value.shape), hints(value.stride()), hint(value.storage_offset())
    if storage._cdata not in memory:
        memory[storage._cdata] = torch.zeros(0, dtype=torch.uint8, device=value.device)
    needed = hint(offset + extent(sizes, strides)) * value.element_size()
    real = memory[storage._cdata].untyped_storage()
    if real.nbytes() < needed:
        real.resize_(needed)
        memory[storage._cdata].set_(real, 0, (real.nbytes(),), (1,)).zero_()
    return torch.empty(0, dtype=value.dtype, device=value.device).set_(real, offset, sizes, strides)
