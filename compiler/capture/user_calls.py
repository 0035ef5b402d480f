"""Calls of the user's that are written otherwise before torch takes them apart.

dropout(x, p, train=False), dropout(x, 0.0)     ->     x itself
dropout(x, 1.0)                                 ->     x * 0, and no random number is drawn
batch_norm(x, ..., cudnn), instance_norm        ->     without cuDNN on a GPU

Dropout at its ends is as eager has it: torch's kernel for recordings copies and draws. cuDNN's batch norm writes its
running statistics unsaid and is one call, where ours is sums and arithmetic that what follows is fused with.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

NORMS = (torch.batch_norm, torch.instance_norm)
CUDNN = 8
"""Where among their arguments it says whether cuDNN may run."""


class UserCalls(TorchFunctionMode):
    """While it is entered, those calls are written so."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Sequence[type], args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:  # fmt: skip
        if func in (F.dropout, torch.dropout):
            value, share, train, in_place = _arguments(*args, **kwargs or {})
            if 0 <= share <= 1 and (share == 0 or not train):
                return value
            if share == 1 and not in_place:
                return value * torch.zeros((), dtype=value.dtype, device=value.device)
        if func in NORMS and len(args) > CUDNN and args[0].is_cuda:
            return func(*args[:CUDNN], False, **kwargs or {})
        return func(*args, **kwargs or {})


def _arguments(
    input: Any, p: float = 0.5, training: bool = True, inplace: bool = False, train: bool | None = None
) -> tuple[Any, float, bool, bool]:
    return input, p, training if train is None else train, inplace
