"""What differs between torch 2.11 and 2.13, and nothing else."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext

import torch
from torch.fx.experimental import proxy_tensor
from torch.fx.experimental.proxy_tensor import ProxyTorchDispatchMode, PythonKeyTracer

Decompositions = Mapping[torch._ops.OpOverload, Callable[..., object]]

_MODE_TAKES_TABLE = "decomposition_table" in inspect.signature(ProxyTorchDispatchMode.__init__).parameters


def proxy_mode(tracer: PythonKeyTracer, decompositions: Decompositions) -> ProxyTorchDispatchMode:
    """The dispatch mode that records every ATen call into `tracer`. 2.13 takes the decompositions as an argument."""
    if _MODE_TAKES_TABLE:
        return ProxyTorchDispatchMode(tracer, "symbolic", decomposition_table=decompositions)
    return ProxyTorchDispatchMode(tracer, "symbolic")


def decomposing(decompositions: Decompositions) -> AbstractContextManager[object]:
    """Before 2.13 the table of decompositions is ambient."""
    if _MODE_TAKES_TABLE:
        return nullcontext()
    return proxy_tensor.decompose(decompositions)
