"""Graph compilers that run a graph as it is, print it, or give it to TorchScript; and the boxed calling convention.

compiler(graph, fake_inputs)  ->  run(list_of_inputs)      boxed: `run` may empty the list, which frees inputs early
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import fx
from torch._decomp import get_decompositions

from assay.compiler.ir.graph.roles import GraphCall
from assay.compiler.torch_compat import Decompositions

aten = torch.ops.aten
GraphCompiler = Callable[[fx.GraphModule, Sequence[object]], Callable[..., Any]]

DECOMPOSED = (
    "conj_physical cudnn_batch_norm cudnn_batch_norm_backward detach elu elu_backward gelu_backward hardsigmoid "
    "hardsigmoid_backward hardswish hardswish_backward hardtanh hardtanh_backward is_same_size leaky_relu "
    "leaky_relu_backward sigmoid_backward silu_backward tanh_backward threshold_backward"
)
"""Operators that `memory_efficient_fusion` takes apart."""


def make_boxed_func(f: Callable[..., Any]) -> GraphCall:
    """`f(*args)` as a function of one list of arguments, which it empties so that they can be freed early.

    Source: the convention is that of torch/_functorch/_aot_autograd/utils.py, torch 2.13.
    """

    def boxed(args: list[object]) -> Sequence[object]:
        taken = list(args)
        args.clear()
        return f(*taken)

    boxed._boxed_call = True  # type: ignore[attr-defined]
    return boxed


def make_boxed_compiler(compiler: GraphCompiler) -> Callable[[fx.GraphModule, Sequence[object]], GraphCall]:
    """The same graph compiler, whose results take one list of arguments.

    Source: the convention is that of torch/_functorch/_aot_autograd/utils.py, torch 2.13.
    """

    @functools.wraps(compiler)
    def boxed_compiler(fx_g: fx.GraphModule, inps: Sequence[object]) -> GraphCall:
        return make_boxed_func(compiler(fx_g, inps))

    return boxed_compiler


@make_boxed_compiler
def nop(fx_g: fx.GraphModule, _: object) -> fx.GraphModule:
    """A graph compiler that runs the graph operator by operator, as it is."""
    return fx_g


@make_boxed_compiler
def print_compile(fx_g: fx.GraphModule, _: object) -> fx.GraphModule:
    """A graph compiler that prints the graph's code and runs it as it is."""
    print(fx_g.code)
    return fx_g


@make_boxed_compiler
def ts_compile(fx_g: fx.GraphModule, inps: Sequence[object]) -> torch.jit.ScriptModule:
    """A graph compiler that hands the graph to TorchScript, scripted, frozen and optimized for inference.

    Raises: the errors of TorchScript for a graph that it cannot express, as one with symbolic sizes.
    """
    with _jit_autocast_off():
        scripted: Any = torch.jit.script(_scriptable(fx_g))
        torch._C._jit_pass_remove_mutation(scripted.graph)
        frozen: torch.jit.ScriptModule = torch.jit.optimize_for_inference(torch.jit.freeze(scripted.eval()))
    return frozen


@contextmanager
def _jit_autocast_off() -> Iterator[None]:
    before = torch._C._jit_set_autocast_mode(False)
    try:
        yield
    finally:
        torch._C._jit_set_autocast_mode(before)


def _scriptable(graph_module: fx.GraphModule) -> fx.GraphModule:
    """A copy whose calls name operators without their overloads, and devices by their type, as TorchScript reads
    them."""
    graph = fx.Graph()
    graph.output(graph.graph_copy(graph_module.graph, {}))
    for node in graph.nodes:
        if isinstance(node.target, torch._ops.OpOverload):
            is_cast = node.target is aten._to_copy.default and len(node.args) == 1 and set(node.kwargs) == {"dtype"}
            node.target = aten.to if is_cast else node.target.overloadpacket
        node.kwargs = {name: v.type if isinstance(v, torch.device) else v for name, v in node.kwargs.items()}
    return fx.GraphModule(graph_module, graph)


def _table() -> Decompositions:
    packets = [getattr(aten, name) for name in DECOMPOSED.split()]
    found: Any = get_decompositions([*packets, aten.masked_fill.Scalar, aten.masked_fill.Tensor])
    return dict(found)


default_decompositions = _table()
"""The decompositions of `memory_efficient_fusion`: activations, their gradients, and masks."""
