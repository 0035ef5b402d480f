"""What differs between torch 2.11 and 2.13, and nothing else."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import sympy
import torch
from torch._dynamo.source import LocalSource
from torch._dynamo.utils import counters
from torch._guards import Source
from torch._library import simple_registry
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental import proxy_tensor
from torch.fx.experimental.proxy_tensor import ProxyTorchDispatchMode, PythonKeyTracer
from torch.fx.experimental.symbolic_shapes import ShapeEnv

Decompositions = Mapping[torch._ops.OpOverload, Callable[..., object]]

BEFORE_2_13 = tuple(map(int, torch.__version__.split(".")[:2])) < (2, 13)

_MODE_TAKES_TABLE = "decomposition_table" in inspect.signature(ProxyTorchDispatchMode.__init__).parameters


def holders_of(tensor: torch.Tensor) -> int:
    """How many references hold a tensor, torch's own included; 0 where this torch does not tell."""
    count: Callable[[], int] = getattr(tensor, "_use_count", lambda: 0)
    return count()


def proxy_mode(
    tracer: PythonKeyTracer, decompositions: Decompositions, pre_dispatch: bool = False
) -> ProxyTorchDispatchMode:
    """The dispatch mode that records every ATen call into `tracer`, below autograd or (`pre_dispatch`) above it. 2.13
    takes the decompositions as an argument."""
    if _MODE_TAKES_TABLE:
        return ProxyTorchDispatchMode(tracer, "symbolic", pre_dispatch=pre_dispatch, decomposition_table=decompositions)
    return ProxyTorchDispatchMode(tracer, "symbolic", pre_dispatch=pre_dispatch)


def recording_functions(
    mode: FakeTensorMode, decompositions: Decompositions, pre_dispatch: bool
) -> AbstractContextManager[None]:
    """While it is entered, torch's operators that take functions record these as graphs, in this mode."""
    tracer = proxy_tensor._MakefxTracer(decompositions, "real", True, pre_dispatch, False, False, True)
    tracer.fake_tensor_mode, tracer.fx_tracer = mode, PythonKeyTracer()
    return proxy_tensor._set_make_fx_tracer(tracer)


def decomposing(decompositions: Decompositions) -> AbstractContextManager[object]:
    """Before 2.13 the table of decompositions is ambient."""
    if _MODE_TAKES_TABLE:
        return nullcontext()
    return proxy_tensor.decompose(decompositions)


def backed_sizes(environment: ShapeEnv) -> Mapping[sympy.Symbol, sympy.Integer]:
    """The numbers that symbols stood for as they were made. 2.13 warns of the older name, so that it is not asked."""
    found = getattr(environment, "backed_var_to_val", None)
    return environment.var_to_val if found is None else found


def has_registered_effect(target: torch._ops.OpOverload) -> bool:
    """Whether an operator is registered as one with an effect that its schema does not tell (it prints, it raises)."""
    return effect_of(target) is not None


def effect_of(target: object) -> str | None:
    """The kind of effect that an operator is registered with, in lower case; None of one without."""
    if isinstance(target, torch._ops.OpOverload):
        name = target._name
    elif isinstance(target, torch._ops.HigherOrderOperator):
        name = f"{target.namespace}::{target.name()}"
    else:
        return None
    registered = getattr(simple_registry.singleton.find(name), "effect", None)
    effect = None if registered is None else registered.effect
    return None if effect is None else str(effect.name).lower()


def is_guarded(source: Source | None) -> bool:
    """Whether Dynamo compiles again where a tensor that came from there is another than it was: whether it requires
    grad, its dtype, its sizes and strides. Before 2.13 it looks so at arguments alone. What a module or the globals
    hold may be unfrozen, converted by `module.double()` or replaced by `parameter.data = ...` unnoticed."""
    return not BEFORE_2_13 or source is None or isinstance(source, LocalSource)


def unpacked(saved: Any) -> torch.Tensor:
    """One of the tensors that a node saved, without a look at the others; before 2.13 nor at its version."""
    if hasattr(saved, "unpack"):
        return saved.unpack()
    return unchecked(saved)


def unchecked(saved: Any) -> torch.Tensor:
    """One of the tensors that a node saved, whatever its version."""
    return saved.data if saved.unpack_hook is None else saved.unpack_hook(saved.data)


def accumulated_gradient(given: tuple[Any, ...]) -> Any:
    """Of what the engine says of a leaf, the gradient to accumulate. From 2.13 on the `.grad` so far stands before."""
    return given[1] if takes_accumulated(given) else given[0]


def takes_accumulated(given: tuple[Any, ...]) -> bool:
    """Whether the engine takes back the `.grad` of a leaf after an accumulation: it then tells of the one before."""
    return len(given) == 3


def name_of_node(name: str, function: Callable[..., Any], is_custom: bool, is_traceable: bool) -> str | None:
    """The name by which torch's own compiler of backwards knows a kind of node from now on; None if it is not loaded.

    The engine tells one compiler in a process what a kind of node computes. The other one learns it from here.
    """
    known = _known_to_torch()
    return None if known is None else str(known.add(name, function, is_custom, is_traceable))


def node_of_name(name: str) -> tuple[Callable[..., Any], bool] | None:
    """What torch's own compiler of backwards was told of a kind of node: what it computes, and whether that may be
    traced. None where it was not told."""
    found = getattr(_known_to_torch(), name, None)
    if found is None:
        return None
    return (found.fn, True) if hasattr(found, "fn") else (found, False)


def refused_gradient(error: RuntimeError) -> str | None:
    """What an error says of a gradient that the engine refuses; None for other errors.

    The engine checks a recorded gradient under a prefix of its own, where eager names the function.
    """
    _, found, refusal = str(error).partition("[Compiled Autograd Tracing:]")
    return refusal if found else None


def _known_to_torch() -> Any:
    return getattr(sys.modules.get("torch._dynamo.compiled_autograd"), "ops", None)


def captures_elsewhere() -> int:
    """How many backwards torch's own compiler has recorded since its counters were reset: the engine keeps them beside
    ours."""
    return counters["compiled_autograd"]["captures"]
