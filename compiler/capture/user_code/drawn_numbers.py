"""Floats that Python's `random` draws, read as the numbers that they are.

Dynamo hands each to a graph as a tensor of no dimensions. It says that the tensor is of float32, and passes float64. A
tensor of no dimensions is also no number: it may decide the dtype of a result.

    mul(x, draw)             ->   number = draw.item(); mul(x, number)
    clamp(draw, min=0.5)     ->   sym_max(number, 0.5)

Source: suites/upstream_bugs/draw_of_a_random_object_is_misread.py
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx
from torch._dynamo.source import RandomValueSource
from torch._subclasses.fake_tensor import FakeTensor


def with_drawn_numbers(gm: fx.GraphModule, example_inputs: Sequence[object]) -> Sequence[object]:
    """The examples of a graph as Dynamo will pass them; the graph then reads drawn floats as numbers."""
    draws = [node for node in gm.graph.find_nodes(op="placeholder") if _is_drawn_float(node)]
    if not draws:
        return example_inputs
    examples: dict[fx.Node, Any] = dict(zip(gm.graph.find_nodes(op="placeholder"), example_inputs, strict=True))
    for node in draws:
        node.meta["example_value"] = _as_passed(node.meta["example_value"])
        examples[node] = examples[node].double()
        _read_as_number(gm.graph, node)
    gm.recompile()
    return list(examples.values())


def _is_drawn_float(node: fx.Node) -> bool:
    is_drawn = isinstance(getattr(node, "_dynamo_source", None), RandomValueSource)
    value = node.meta.get("example_value")
    return is_drawn and isinstance(value, FakeTensor) and value.is_floating_point() and value.item_memo is None


def _as_passed(declared: FakeTensor) -> FakeTensor:
    """A drawn float as it is passed, with the symbol of the number that it is."""
    mode = declared.fake_mode
    assert mode.shape_env is not None
    with mode:
        passed = torch.empty((), dtype=torch.float64)
    assert isinstance(passed, FakeTensor)
    with mode.shape_env.ignore_fresh_unbacked_symbols():
        passed.item_memo = mode.shape_env.create_unbacked_symfloat()
    return passed


def _read_as_number(graph: fx.Graph, draw: fx.Node) -> None:
    readers = list(draw.users)
    with graph.inserting_after(_last_placeholder(graph)):
        number = graph.call_method("item", (draw,))
    number.meta["example_value"] = draw.meta["example_value"].item_memo
    for reader in readers:
        reader.replace_input_with(draw, number)
        if reader.target in OF_NUMBERS:
            reader.target = OF_NUMBERS[reader.target]


def _last_placeholder(graph: fx.Graph) -> fx.Node:
    return list(graph.find_nodes(op="placeholder"))[-1]


def _clamp(number: Any, min: Any = None, max: Any = None) -> Any:
    """What Dynamo writes for `max(number, min)` and `min(number, max)`."""
    if min is not None:
        number = torch.sym_max(number, min)
    return number if max is None else torch.sym_min(number, max)


OF_NUMBERS: dict[Any, Callable[..., Any]] = {
    torch.clamp: _clamp,
    torch.maximum: torch.sym_max,
    torch.minimum: torch.sym_min,
}
"""Operators that take tensors alone, as they are on numbers."""
