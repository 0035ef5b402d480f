"""Global settings of torch and of Python that a call leaves changed."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx
from torch.utils._python_dispatch import TorchDispatchMode

from assay.harness.selftest.wrong_backends.registry import Run, wrong


def _leaving(graph: fx.GraphModule, change: Callable[[], object]) -> Run:
    """Runs the graph, then the change."""

    def run(*args: Any) -> Sequence[Any]:
        results = graph.forward(*args)
        change()
        return results  # type: ignore[no-any-return]

    return run


@wrong("ambient state")
def leaves_default_dtype(graph: fx.GraphModule, example_inputs: Sequence[object]) -> Run:
    """The default dtype is float64 after a call."""
    return _leaving(graph, lambda: torch.set_default_dtype(torch.float64))


@wrong("ambient state")
def leaves_gradients_switched(graph: fx.GraphModule, example_inputs: Sequence[object]) -> Run:
    """After a call, gradients are on where they were off, and off where they were on."""
    return _leaving(graph, lambda: torch._C._set_grad_enabled(not torch.is_grad_enabled()))


@wrong("ambient state")
def leaves_determinism_on(graph: fx.GraphModule, example_inputs: Sequence[object]) -> Run:
    """Deterministic algorithms are asked for after a call, with warnings only."""
    return _leaving(graph, lambda: torch.use_deterministic_algorithms(True, warn_only=True))


@wrong("ambient state")
def leaves_another_number_of_threads(graph: fx.GraphModule, example_inputs: Sequence[object]) -> Run:
    """Operators have another number of threads after a call."""
    threads = torch.get_num_threads() + 1
    return _leaving(graph, lambda: torch.set_num_threads(threads))


@wrong("ambient state")
def leaves_another_dtype_for_autocast(graph: fx.GraphModule, example_inputs: Sequence[object]) -> Run:
    """Autocast has another dtype after a call."""  # whether it is on, Dynamo puts back behind every backend
    return _leaving(graph, lambda: torch.set_autocast_dtype("cpu", torch.float16))


@wrong("ambient state")
def leaves_products_less_precise(graph: fx.GraphModule, example_inputs: Sequence[object]) -> Run:
    """Matrix products have medium precision after a call."""
    return _leaving(graph, lambda: torch.set_float32_matmul_precision("medium"))


@wrong("ambient state")
def leaves_anomaly_mode_on(graph: fx.GraphModule, example_inputs: Sequence[object]) -> Run:
    """Autograd looks for NaN in every backward after a call."""
    return _leaving(graph, lambda: torch.autograd.set_detect_anomaly(True))


@wrong("ambient state")
def leaves_collection_off(graph: fx.GraphModule, example_inputs: Sequence[object]) -> Run:
    """Python collects no cycles after a call."""
    return _leaving(graph, gc.disable)


@wrong("ambient state")
def leaves_warnings_ignored(graph: fx.GraphModule, example_inputs: Sequence[object]) -> Run:
    """Warnings are ignored after a call."""
    return _leaving(graph, lambda: warnings.simplefilter("ignore"))


class _Nothing(TorchDispatchMode):
    """Runs each operator as it is."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


@wrong("ambient state")
def leaves_a_dispatch_mode_on(graph: fx.GraphModule, example_inputs: Sequence[object]) -> Run:
    """A mode that sees every operator is on after a call."""
    return _leaving(graph, lambda: _Nothing().__enter__())


@wrong("ambient state")
def leaves_backward_in_one_thread(graph: fx.GraphModule, example_inputs: Sequence[object]) -> Run:
    """Autograd runs every backward in the thread that asks for it, after a call."""
    return _leaving(graph, lambda: torch._C._set_multithreading_enabled(False))
