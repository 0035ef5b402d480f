"""Every OpInfo on tensors that lie in all ways, with sizes of 0 and 1 in each place: `assay run strides`.

    forward     infer    the operator
    backward    train    the operator and the gradients of everything that it is differentiable in

Strides and offsets of results and gradients are compared to the letter, those along dimensions of one element or none
too. A sample of the database comes as it is, as an image and as a volume. Each of these also comes with each dimension
of its input cut to one element and to none. Other tensors of that size are cut with it, or stay, or are filled with
zeros, whatever eager runs.

All that comes in every layout of `suites/ops/layouts.py`. Of what an operator has then, `MOST` are run, chosen by a
hash of their names.
"""

from __future__ import annotations

import functools
import hashlib
import math
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from assay.harness.batches.sample import Batch, Sample
from assay.harness.observe.observation import seed_all
from assay.suites.ops.database import op_db
from assay.suites.ops.layouts import ALL_LAYOUTS, is_plain, laid_out
from assay.suites.ops.operators import FIRST, PLAIN, called, differentiated, dtype_name, name_of, some

SAMPLES, ELEMENTS = 8, 2000
"""Of the database how many samples of an operator, of at most how many elements."""
MOST = {"static": 96, "dynamic": 24}
"""How many samples of a batch."""
CUTS = (1, 0)
DEEPER = {"image": (2, 3, 4, 5), "volume": (2, 3, 2, 4, 3)}
UNCHECKED = ("native_batch_norm", "_native_batch_norm_legit", "_batch_norm_with_update", "lu_unpack")
"""Operators that look at no size of their other arguments before they read and write so far. They are not cut."""

Values = tuple[Any, tuple[Any, ...], dict[str, Any]]
"""What a sample gives to its operator: the input, the other arguments by position and by name."""


def batches() -> Iterator[Batch]:
    """Every batch, in the database's order."""
    for op in op_db:
        dtypes = op.supported_dtypes("cpu")
        for dtype in [dtype for dtype in FIRST if dtype in dtypes][:1]:
            yield _batch(op, dtype, "forward", "infer", "static")
            yield _batch(op, dtype, "forward", "infer", "dynamic")
            if op.supports_autograd and dtype in op.supported_backward_dtypes("cpu"):
                yield _batch(op, dtype, "backward", "train", "static")
                yield _batch(op, dtype, "backward", "train", "dynamic")


def _batch(op: Any, dtype: torch.dtype, form: str, mode: str, shapes: str) -> Batch:
    group = f"{name_of(op)}.{dtype_name(dtype)}"
    make = functools.partial(_samples, op, dtype, mode == "train", MOST[shapes])
    return Batch(f"{group}.{form}", group, mode, make, shapes=(shapes,), tags=("strides",))


def _samples(op: Any, dtype: torch.dtype, is_trained: bool, most: int, seed: int) -> list[Sample]:
    """The operator's samples that are chosen, each in its size and layout."""
    seed_all(seed)
    given = enumerate(op.sample_inputs("cpu", dtype, requires_grad=is_trained))
    small = [(number, sample) for number, sample in given if _elements(sample) <= ELEMENTS]
    chosen = some(small, SAMPLES, f"{name_of(op)} {dtype}")
    made = [
        (f"{number} {size} {layout}", laid)
        for number, sample in chosen
        for size, values in _sized(op, (sample.input, sample.args, sample.kwargs))
        for layout, laid in _in_layouts(values)
    ]
    call = differentiated if is_trained else called
    kept = sorted(made, key=lambda item: hashlib.md5(f"{name_of(op)} {item[0]}".encode()).digest())[:most]
    like = {str(number): sample for number, sample in chosen}
    return [Sample(name, *call(op, _with_values(like[name.split(" ")[0]], values))) for name, values in kept]


def _elements(sample: Any) -> int:
    leaves = pytree.tree_leaves((sample.input, sample.args, sample.kwargs))
    return sum(leaf.numel() for leaf in leaves if isinstance(leaf, Tensor))


def _with_values(sample: Any, values: Values) -> Any:
    made = type(sample)(values[0], args=values[1], kwargs=values[2])
    made.output_process_fn_grad = sample.output_process_fn_grad
    return made


def _in_layouts(values: Values) -> Iterator[tuple[str, Values]]:
    yield PLAIN, values
    for name, layout in ALL_LAYOUTS.items():
        if (made := laid_out(values, layout, with_small=True)) is not None:
            yield name, made


# ---- sizes ---------------------------------------------------------------------------------------------------------


def _sized(op: Any, values: Values) -> Iterator[tuple[str, Values]]:
    """The values as they are and in more dimensions, and each with each dimension of the first tensor cut."""
    yield "whole", values
    if op.name in UNCHECKED:
        return
    for name, sized in (("whole", values), *_deeper(op.op, values)):
        if name != "whole":
            yield name, sized
        for dim, size in enumerate(_first(sized).shape if _has_tensor(sized) else ()):
            for count in CUTS:
                if size > count and (made := _accepted(op.op, sized, dim, count)):
                    yield f"{name}-{dim}={count}", made


def _deeper(operator: Callable[..., Any], values: Values) -> Iterator[tuple[str, Values]]:
    """The values with the first tensor, and those of its shape, as an image and as a volume, where eager runs that."""
    if not _has_tensor(values) or not (first := _first(values)).numel():
        return
    for name, shape in DEEPER.items():
        if first.dim() < len(shape):
            made = pytree.tree_map_only(Tensor, functools.partial(_reshaped, like=first, shape=shape), values)
            if _runs(operator, made):  # type: ignore[arg-type]
                yield name, made  # type: ignore[misc]


def _reshaped(tensor: Tensor, like: Tensor, shape: tuple[int, ...]) -> Tensor:
    """The tensor's elements, over and over, if it is one of those to be made deeper."""
    if tensor.shape != like.shape or not is_plain(tensor):
        return tensor
    count = math.prod(shape)
    made = tensor.detach().flatten().repeat(count // tensor.numel() + 1)[:count].view(shape).clone()
    return made.requires_grad_(tensor.requires_grad)


def _has_tensor(values: Values) -> bool:
    return any(isinstance(leaf, Tensor) for leaf in pytree.tree_leaves(values))


def _first(values: Values) -> Tensor:
    return next(leaf for leaf in pytree.tree_leaves(values) if isinstance(leaf, Tensor))


def _accepted(operator: Callable[..., Any], values: Values, dim: int, count: int) -> Values | None:
    """The first of the ways to cut the values that eager runs."""
    for change in (_cut_alike, _cut_first):
        made = change(values, dim, count)
        for filled in (made, pytree.tree_map_only(Tensor, _without_numbers, made)):
            if _runs(operator, filled):
                return filled
    return None


def _runs(operator: Callable[..., Any], values: Values) -> bool:
    try:
        with warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")
            operator(values[0], *values[1], **values[2])
    except Exception:
        return False
    return True


def _cut_alike(values: Values, dim: int, count: int) -> Values:
    """All tensors that are as long there as the first, counted from the last dimension, are cut."""
    first = _first(values)
    from_last, size = dim - first.dim(), first.shape[dim]

    def cut(tensor: Tensor) -> Tensor:
        is_alike = tensor.dim() >= -from_last and tensor.shape[from_last] == size
        return _cut(tensor, from_last, count) if is_alike else tensor

    return pytree.tree_map_only(Tensor, cut, values)  # type: ignore[return-value]


def _cut_first(values: Values, dim: int, count: int) -> Values:
    leaves, spec = pytree.tree_flatten(values)
    place = next(place for place, leaf in enumerate(leaves) if isinstance(leaf, Tensor))
    leaves[place] = _cut(leaves[place], dim, count)
    return pytree.tree_unflatten(leaves, spec)  # type: ignore[return-value]


def _cut(tensor: Tensor, dim: int, count: int) -> Tensor:
    if not is_plain(tensor):
        return tensor
    made = tensor.detach().narrow(dim, 0, count).clone(memory_format=torch.contiguous_format)
    return made.requires_grad_(tensor.requires_grad)


def _without_numbers(tensor: Tensor) -> Tensor:
    """Zeros in the place of integers, which may be places that a cut tensor lacks."""
    is_integer = not tensor.dtype.is_floating_point and not tensor.dtype.is_complex
    return torch.zeros_like(tensor) if is_integer and tensor.dtype is not torch.bool else tensor
