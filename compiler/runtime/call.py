"""What an emitted call runs beside its graphs: tests, writes and versions of inputs, and layouts.

Some of it stands for a function of torch's own that does more than the call needs.

Costs are of one x86-64 core at about 3 GHz.
"""

from __future__ import annotations

import functools
import math
import operator
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, TypeVar

import torch
from torch._C._dynamo import eval_frame
from torch.autograd.graph import increment_version

from assay.compiler.ir.tensors.layout.strides import hint, is_known
from assay.compiler.torch_stubs import reinterpret_tensor as reinterpret

Function = TypeVar("Function", bound=Callable[..., Any])

is_grad_enabled: Callable[[], bool] = torch.is_grad_enabled
set_grad_enabled = torch._C._set_grad_enabled

in_transform: Callable[[], bool] = torch._C._are_functorch_transforms_active
in_autocast: Callable[[], bool] = torch._C._is_any_autocast_enabled
in_anomaly_mode: Callable[[], bool] = torch.is_anomaly_enabled
hooks_now: Callable[[bool], object] = torch._C._autograd._top_saved_tensors_default_hooks
"""The hooks on saved tensors that are around the call, or None."""


def copy_each(into: Sequence[torch.Tensor], values: Sequence[torch.Tensor]) -> None:
    """Copies each value, on a GPU in one launch for each dtype: `torch._foreach_copy_` copies those of several dtypes
    one by one, as running statistics are beside the count of their batches."""
    if len(into) == 1:
        into[0].copy_(values[0])
        return
    alike: dict[torch.dtype, tuple[list[torch.Tensor], list[torch.Tensor]]] = {}
    for old, value in zip(into, values, strict=True):
        olds, news = alike.setdefault(old.dtype, ([], []))
        olds.append(old)
        news.append(value)
    for olds, news in alike.values():
        torch._foreach_copy_(olds, news)


SKIP = eval_frame._FrameExecStrategy(eval_frame._FrameAction.SKIP, eval_frame._FrameAction.SKIP)


_enter_batch: Callable[[], int] = torch._C._vmapmode_increment_nesting
_leave_batch: Callable[[], int] = torch._C._vmapmode_decrement_nesting
_is_legacy_batch: Callable[[torch.Tensor], bool] = torch._C._functorch.is_legacy_batchedtensor


def in_batch() -> bool:
    """Whether tensors may be batches in disguise, of `torch.func` or of `is_grads_batched`, which no kernel takes.
    Cost: 0.1 us."""
    _enter_batch()
    return _leave_batch() > 0 or in_transform()


def is_batch(tangent: torch.Tensor | None) -> bool:
    """Whether a tangent is a batch in disguise, of `is_grads_batched`: the threads of other devices, in which autograd
    runs a backward, know of no batch by themselves. Cost: 0.2 us."""
    return tangent is not None and _is_legacy_batch(tangent)


class GradOff:
    """`with GradOff():` switches gradients off and back. Cost: 0.3 us where `torch.no_grad()` takes 1.1 us."""

    __slots__ = ("_was_enabled",)

    def __enter__(self) -> None:
        self._was_enabled = is_grad_enabled()
        set_grad_enabled(False)

    def __exit__(self, *_: object) -> None:
        set_grad_enabled(self._was_enabled)


@contextmanager
def outside_inference() -> Iterator[None]:
    """While it is open, inference mode is off, and so are gradients."""
    with torch.inference_mode(False), GradOff():
        yield


def inside_inference() -> AbstractContextManager[Any]:
    """Inference mode, in which all is made as an inference tensor."""
    return torch.inference_mode()


def apply_of(function: type[torch.autograd.Function]) -> Callable[..., Any]:
    """`function.apply` where no functorch transform is active: without the 2 us of looking for their dead wrappers."""
    apply: Callable[..., Any] = super(torch.autograd.Function, function).apply  # type: ignore[misc]
    return apply


def untraced(function: Function) -> Function:
    """The function itself. From now on Dynamo traces neither it nor what it calls, torch's compiled autograd neither.

    Autograd runs a backward wherever a program is, also while Dynamo is tracing it. Cost: nothing where no trace is on.
    """
    function._torchdynamo_disable = True  # type: ignore[attr-defined]
    return traced_when_inlined(function)


def traced_when_inlined(function: Function) -> Function:
    """The function itself. From now on Dynamo traces it only where torch's compiled autograd inlines a backward."""
    eval_frame.set_code_exec_strategy(function.__code__, SKIP)
    return function


def without_autocast(function: Callable[..., Any], *args: Any) -> Any:
    """What a function returns below autocast: a backward runs what was recorded, whose casts are in it already."""
    with torch._C._DisableAutocast():
        return function(*args)


def warn_from(message: str, category: type[Warning], filename: str, line: int) -> None:
    """Warns as a statement in that line of that file would, which is shown once by default."""
    warnings.warn_explicit(message, category, filename, line, registry=_SHOWN.setdefault(filename, {}))


_SHOWN: dict[str, dict[str | tuple[str, type[Warning], int], int]] = {}


Made = TypeVar("Made", bound=Callable[..., object])


def is_negative(number: torch.Tensor) -> bool:
    """Whether a number has the sign bit, as -0.0 does. Cost: 0.5 us."""
    return math.copysign(1.0, number.item()) < 0.0


def current_device() -> int:
    """The current GPU. Cost: 0.1 us."""
    return torch._C._cuda_getDevice()


def requires_grad(value: torch.Tensor) -> bool:
    return value.requires_grad


def base_of(*views: torch.Tensor) -> torch.Tensor:
    """The tensor that autograd knows as the base of all the views, or that one of them is."""
    first = views[0]
    return first if first._base is None else first._base


def without_history(args: Sequence[object]) -> list[object]:
    """The inputs of a graph, of which autograd knows nothing."""
    return [arg.detach() if isinstance(arg, torch.Tensor) else arg for arg in args]


def laid_over(extent: int, *views: torch.Tensor) -> torch.Tensor:
    """A flat tensor over the first `extent` elements of the views' storage; autograd knows nothing of it."""
    with torch.no_grad():
        return views[0].detach().as_strided((extent,), (1,), 0)


def hooks_off() -> AbstractContextManager[Any]:
    """Autograd saves what it is given as it is, whatever hooks are around the call."""
    return torch.autograd.graph.saved_tensors_hooks(_as_it_is, _as_it_is)


def _as_it_is(value: torch.Tensor) -> torch.Tensor:
    return value


def relaid(value: torch.Tensor, strides: tuple[int, ...], offset: int) -> torch.Tensor:
    """The same values, so laid out; copied only where an element has to move."""
    moves = [now != wanted for size, now, wanted in zip(value.shape, value.stride(), strides, strict=True) if size > 1]
    if value.storage_offset() == offset and (value.numel() == 0 or not any(moves)):
        return reinterpret(value, value.size(), strides, 0)
    extent = offset + sum((size - 1) * step for size, step in zip(value.shape, strides, strict=True)) + 1
    memory = torch.empty(extent, dtype=value.dtype, device=value.device)
    return reinterpret(memory, value.size(), strides, offset).copy_(value)


def as_no_view(value: torch.Tensor) -> torch.Tensor:
    """A tensor over the same memory, in the same layout, that autograd takes for a view of nothing."""
    return reinterpret(value, value.size(), value.stride(), 0)


def note_varying(value: torch.Tensor, dims: set[int]) -> None:
    """Has Dynamo take these dimensions of a tensor for symbols in the next graph that is given it.

    Source: the attribute that torch/_dynamo/variables/builder.py, torch 2.13, looks for. No guard asks for it.
    """
    known = getattr(value, "_dynamo_propagated_dynamic_indices", None)
    value._dynamo_propagated_dynamic_indices = dims if known is None else known | dims  # type: ignore[attr-defined]


def leaf_grad_off(value: torch.Tensor) -> AbstractContextManager[Any]:
    """Gradients off for a leaf that requires one: nobody changes its shape in place otherwise."""
    return GradOff() if value.requires_grad and value.is_leaf else nullcontext()


def cut_off(value: torch.Tensor) -> None:
    """Makes an input require no gradient. Inference mode leaves a leaf as it is that `detach_` is called of."""
    if value.is_leaf:
        value.requires_grad_(False)
    else:
        value.detach_()


def fill_out(value: torch.Tensor, least: int) -> None:
    """Gives a tensor whose storage was freed, or made too small, the memory that its elements need, and at least this
    many bytes."""
    reach = sum((size - 1) * step for size, step in zip(value.shape, value.stride(), strict=True)) + 1
    elements = (value.storage_offset() + reach) * value.element_size() if value.numel() else 0
    needed = max(int(elements), least)
    if value.untyped_storage().nbytes() < needed:
        value.untyped_storage().resize_(needed)


def resize_storage(value: torch.Tensor, nbytes: int) -> None:
    """Gives the storage of a tensor this size: 0 frees it."""
    if value.untyped_storage().nbytes() != nbytes:
        value.untyped_storage().resize_(nbytes)


def overwrite(kept: torch.Tensor, new: torch.Tensor) -> None:
    """Copies the value of an input after the call into it, where autograd records the copy.

    What the input was before gets its gradient from the graph alone. A copy would add a gradient of zeros to it, which
    changes -0.0, and a complex infinity beside NaN. Torch detaches no views in place.
    """
    if kept.requires_grad and not kept.is_leaf and not kept._is_view():
        kept.detach_()
    kept.copy_(new)


def write_back(kept: Sequence[torch.Tensor], new: Sequence[torch.Tensor], times: Sequence[int]) -> None:
    """Copies the values of inputs after the call into them; what a kernel wrote over its input is there already. The
    version of each grows by as many `times` as eager writes it."""
    if all(map(operator.is_, kept, new)):
        increment_version(_growing(tuple(times))(kept))
        return
    grown: list[torch.Tensor] = []
    stale, fresh = list[torch.Tensor](), list[torch.Tensor]()
    for old, value, count in zip(kept, new, times, strict=True):
        if old is not value:
            stale.append(old if count else old.data)
            fresh.append(value)
            count -= 1
        grown += [old] * count
    if stale:
        copy_each(stale, fresh)
    increment_version(grown)


@functools.lru_cache(maxsize=1024)
def _growing(times: tuple[int, ...]) -> Callable[[Sequence[torch.Tensor]], Sequence[torch.Tensor]]:
    """What takes each tensor as often as its version grows."""
    positions = [position for position, count in enumerate(times) for _ in range(count)]
    if len(positions) > 1:
        return operator.itemgetter(*positions)
    return lambda tensors: [tensors[position] for position in positions]


def bump_version(tensor: torch.Tensor, by: int) -> None:
    """Makes a tensor's version grow as eager's writes would have. Inference tensors have none."""
    if not tensor.is_inference():
        torch._C._autograd._unsafe_set_version_counter((tensor,), (tensor._version + by,))


WRITTEN = "one of the variables needed for gradient computation has been modified by an inplace operation"


def check_versions(written: Sequence[tuple[torch.Tensor, int]]) -> None:
    """Raises: RuntimeError, as eager's backward does, where a tensor has been written since its value was saved."""
    for tensor, version in written:
        if tensor._version != version:
            raise RuntimeError(
                f"{WRITTEN}: [{tensor.type()} {list(tensor.shape)}] is at version {tensor._version}; expected version "
                f"{version} instead"
            )


def zeros_like(expected: torch.Tensor) -> Callable[[torch.Size], torch.Tensor]:
    """Zeros of a shape, in the dtype and on the device of a tangent."""
    return _zeros_of(expected.dtype, expected.device)


def _zeros_of(dtype: torch.dtype, device: torch.device) -> Callable[[torch.Size], torch.Tensor]:
    def zeros(shape: torch.Size) -> torch.Tensor:
        return torch.zeros(shape, dtype=dtype, device=device)

    return _made_by(zeros, _zeros_of, dtype, device)


def _made_by(function: Made, maker: Callable[..., object], *arguments: object) -> Made:
    """The function with a note of how to make it again, for whoever keeps a call beyond its process."""
    function.made_by = maker, arguments  # type: ignore[attr-defined]
    return function


def copy_as_it_lies(value: torch.Tensor) -> torch.Tensor:
    """A copy with the strides of `value`, also where it leaves elements of its memory out: backward relies on them."""
    copy = value.clone()
    return copy if copy.stride() == value.stride() else _with_gaps(value)


def _with_gaps(value: torch.Tensor) -> torch.Tensor:
    copy = torch.empty_strided(value.size(), value.stride(), dtype=value.dtype, device=value.device)
    if value.is_conj():
        copy = copy.conj()
    if value.is_neg():
        copy = torch._neg_view(copy)
    return copy.copy_(value)


def laid_out_as(expected: torch.Tensor) -> Callable[[torch.Tensor], torch.Tensor]:
    """A function that gives a tangent the strides that the backward graph was recorded with, and its numbers plainly:
    kernels know of no lazy conjugates and negatives."""
    strides: tuple[int | torch.SymInt, ...] = expected.stride()
    order = list(range(expected.dim()))  # in rows, where a stride is only known when the program runs
    if all(map(is_known, strides)):
        order.sort(key=lambda dim: (-hint(strides[dim]), dim))
    are_numbers = not any(isinstance(stride, torch.SymInt) for stride in strides)
    return _laid_out_by(tuple(order), tuple(strides) if are_numbers else None, expected.dtype.is_complex)


def _laid_out_by(
    order: tuple[int, ...], stride: tuple[int | torch.SymInt, ...] | None, is_complex: bool
) -> Callable[[torch.Tensor], torch.Tensor]:
    """`order` are the dimensions, the slowest in memory first; `stride` is None where it depends on symbols."""
    inverse = [order.index(dim) for dim in range(len(order))]
    ordered = order == tuple(range(len(order)))

    def laid_out(tangent: torch.Tensor) -> torch.Tensor:
        if tangent.layout is not torch.strided:
            return tangent
        if tangent.is_neg() or (is_complex and tangent.is_conj()):
            tangent = tangent.resolve_conj().resolve_neg()
        if stride is not None and tangent.stride() == stride:
            return tangent
        if ordered:
            return tangent.contiguous()
        return tangent.permute(order).contiguous().permute(inverse)

    return _made_by(laid_out, _laid_out_by, order, stride, is_complex)
