"""On which devices kernels are generated."""

from __future__ import annotations

import functools
import importlib.util

import torch
from torch import fx


def asks_for_current(module: fx.GraphModule) -> bool:
    """Whether a graph, or one within it, makes or moves a tensor on the GPU that is the current one when it runs."""
    graphs = (each.graph for each in module.modules() if isinstance(each, fx.GraphModule))
    return any(_is_on_current(node) for graph in graphs for node in graph.nodes)


def current_if_asked(module: fx.GraphModule) -> int | None:
    """The GPU that is the current one, where a graph asks for that; None where none does, or there is none."""
    return torch.cuda.current_device() if asks_for_current(module) and torch.cuda.is_available() else None


def _is_on_current(node: fx.Node) -> bool:
    if node.op == "call_method" and node.target == "cuda":
        return len(node.args) == 1 and not node.kwargs.get("device")
    if node.op == "call_method" and node.target == "to":
        return any(_is_current(value) for value in (*node.args[1:], node.kwargs.get("device")))
    return _is_current(node.kwargs.get("device"))


def _is_current(value: object) -> bool:
    return value == "cuda" or (isinstance(value, torch.device) and value.type == "cuda" and value.index is None)


def has_kernels(device: torch.device) -> bool:
    """Whether programs on the device become kernels; elsewhere every operator is a call to ATen."""
    return device.type == "cpu" or (device.type == "cuda" and has_triton())


@functools.cache
def has_triton() -> bool:
    """Whether Triton is there."""
    return importlib.util.find_spec("triton") is not None


LEAST, LEAST_OF_BFLOAT16 = (7, 0), (8, 0)
"""The capabilities of GPUs that Triton compiles for, and for which it knows bfloat16."""


@functools.cache
def least_capability() -> tuple[int, int] | None:
    """That of the oldest GPU of this process; None where there is none. It sets CUDA up: only programs on a GPU ask."""
    if not torch.cuda.is_available():
        return None
    return min(torch.cuda.get_device_capability(device) for device in range(torch.cuda.device_count()))
