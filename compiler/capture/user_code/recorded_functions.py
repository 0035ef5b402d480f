"""Operators that take functions, recorded: each as one node, its functions as graphs inside the graph.

    torch.cond(p, f, g, (x,))     ->     cond(p, true_graph_0, false_graph_0, (x,))

Gradients, the layouts of results, and the writes and aliases that are refused are those of torch's own operators.
Dynamo's graphs are cut at such calls instead (`entry/pieces/control_flow.py`), so that their functions are compiled.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensorMode
from torch._subclasses.functional_tensor import FunctionalTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from assay.compiler import FOLDER
from assay.compiler.errors import Unsupported
from assay.compiler.ir.graph.held_functions import (
    HELD_FUNCTIONS,
    IS_PURE,
    REGION,
    functions_of,
    is_any_inside,
    nodes_inside,
)
from assay.compiler.ir.graph.trace import eliminate_dead_nodes, has_effect, is_random
from assay.compiler.ir.graph.writes.watching import Watching
from assay.compiler.torch_compat import recording_functions

OF_LAYOUT = ("strides of the two branches' output", "cond's output stride")
"""In what torch says of branches whose results lie in different ways."""


def record_function_call(operator: torch._ops.HigherOrderOperator, mode: Watching, *args: Any, **kwargs: Any) -> Any:
    """Records a call of an operator that takes functions.

    Raises: Unsupported where whoever records takes no such calls, and for a backward that computes its forward again
    where that draws random numbers: these would be others.
    """
    if mode.holds_functions is None:
        raise Unsupported(
            f"the program calls {operator._name}, a higher-order operator, whose functions no graph holds"
        )
    last = next(iter(reversed(mode.tracer.graph.nodes)), None)
    with mode.holds_functions(), _one_layout(operator):
        result = operator.python_key_table[FunctionalTensorMode](mode, *args, **kwargs)
    for node in _recorded_after(mode.tracer.graph, last):
        for function in functions_of(node, mode.tracer.root):
            eliminate_dead_nodes(function.graph)
            function.recompile()
        is_backward = torch._C._current_graph_task_id() != -1 and node.target is not REGION
        if is_backward and is_any_inside(node, mode.tracer.root, is_random):
            raise Unsupported(f"the backward of {operator._name} draws the random numbers of its forward again")
        if not is_any_inside(node, mode.tracer.root, has_effect):
            node.meta[IS_PURE] = True
        for inner in nodes_inside(node, mode.tracer.root):
            inner.stack_trace = _of_users(inner.stack_trace)
    return result


def _of_users(lines: str | None) -> str | None:
    """The lines that a node comes from, without those of our own files: Dynamo looks through what rewrites calls."""
    frames = re.split(r"(?m)^(?=  File )", lines or "")
    return "".join(frame for frame in frames if str(FOLDER) not in frame) or None


def _recorded_after(graph: fx.Graph, last: fx.Node | None) -> Iterator[fx.Node]:
    """The calls of such operators behind a node of a graph."""
    for node in reversed(graph.nodes):
        if node is last:
            return
        if node.op == "call_function" and node.target in HELD_FUNCTIONS:
            yield node


@contextmanager
def _one_layout(operator: torch._ops.HigherOrderOperator) -> Iterator[None]:
    """Raises: Unsupported for branches whose results lie in different ways: one node has one layout."""
    try:
        yield
    except RuntimeError as error:
        if not any(said in str(error) for said in OF_LAYOUT):
            raise
        raise Unsupported(f"the branches of {operator._name} give results that lie in different ways") from error


@contextmanager
def functions_recorded(mode: FakeTensorMode, decompositions: Any, pre_dispatch: bool) -> Iterator[None]:
    """While it is open, torch records functions as graphs in this mode. A mode without symbols has them from here on if
    some were made, as of how often a loop runs. The sizes of inputs stay numbers."""
    known = mode.shape_env
    mode.shape_env = ShapeEnv() if known is None else known
    with recording_functions(mode, decompositions, pre_dispatch):
        yield
    if not mode.shape_env.var_to_range:
        mode.shape_env = known


for _operator in HELD_FUNCTIONS:
    _operator.py_impl(Watching)(functools.partial(record_function_call, _operator))
