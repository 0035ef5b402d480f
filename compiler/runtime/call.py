"""What an emitted call runs instead of torch's own, where torch's does more than the call needs.

Costs are of one x86-64 core at about 3 GHz.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import torch
from torch._C._dynamo import eval_frame

Function = TypeVar("Function", bound=Callable[..., Any])

is_grad_enabled: Callable[[], bool] = torch.is_grad_enabled
set_grad_enabled = torch._C._set_grad_enabled

in_transform: Callable[[], bool] = torch._C._are_functorch_transforms_active
in_autocast: Callable[[], bool] = torch._C._is_any_autocast_enabled
in_anomaly_mode: Callable[[], bool] = torch.is_anomaly_enabled


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


def apply_of(function: type[torch.autograd.Function]) -> Callable[..., Any]:
    """`function.apply` where no functorch transform is active: without the 2 us of looking for their dead wrappers."""
    apply: Callable[..., Any] = super(torch.autograd.Function, function).apply  # type: ignore[misc]
    return apply


def untraced(function: Function) -> Function:
    """The function itself. From now on Dynamo traces neither it nor what it calls.

    Autograd runs a backward wherever a program is, also while Dynamo is tracing it. torch's compiled autograd has
    Dynamo inline it.

    Cost: nothing where no trace is on.
    """
    eval_frame.set_code_exec_strategy(function.__code__, SKIP)
    function._torchdynamo_disable = True  # type: ignore[attr-defined]
    return function


def without_autocast(function: Callable[..., Any], *args: Any) -> Any:
    """What a function returns below autocast: a backward runs what was recorded, whose casts are in it already."""
    with torch._C._DisableAutocast():
        return function(*args)


def warn_from(message: str, category: type[Warning], filename: str, line: int) -> None:
    """Warns as a statement in that line of that file would, which is shown once by default."""
    warnings.warn_explicit(message, category, filename, line, registry=_SHOWN.setdefault(filename, {}))


_SHOWN: dict[str, dict[str | tuple[str, type[Warning], int], int]] = {}
