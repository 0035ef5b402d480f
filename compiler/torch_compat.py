"""What differs between torch 2.11 and 2.13, and nothing else."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext

import torch
from torch._library import simple_registry
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


def has_registered_effect(target: torch._ops.OpOverload) -> bool:
    """Whether an operator is registered as one with an effect that its schema does not tell (it prints, it raises)."""
    entry = simple_registry.singleton.find(target._name)
    found = getattr(entry, "effect", None)
    return found is not None and found.effect is not None
