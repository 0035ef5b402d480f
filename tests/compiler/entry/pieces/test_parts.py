"""How a graph is divided: units, what may pass between parts, and parts that together give what the graph gives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, fx

from assay.compiler.entry.pieces.parts import contexts, divided, first_units, units_of, without_held
from assay.compiler.entry.pieces.run import InPieces, Step


def graph_of(f: Callable[..., Any], *args: object) -> fx.GraphModule:
    """The graph that Dynamo makes of a function."""
    made: list[fx.GraphModule] = []

    def keep(gm: fx.GraphModule, _: object) -> Callable[..., Any]:
        made.append(gm)
        return gm.forward

    torch._dynamo.reset()
    torch.compile(f, backend=keep, fullgraph=True)(*args)
    return made[0]


def split_and_join(x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
    a, b = (x @ w).chunk(2)
    c = a.sin() * b
    c.add_(1)
    return c.cos(), b + c


def written_between(x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
    view = x.t()
    y = view * 2
    x.mul_(w)
    return y, view + y


FUNCTIONS = (split_and_join, written_between)


def run_divided(gm: fx.GraphModule, in_eager: set[int], args: list[Tensor]) -> Any:
    parts = divided(gm, units_of(gm.graph), in_eager)
    takes = tuple(node.name for node in gm.graph.find_nodes(op="placeholder"))
    (output,) = gm.graph.find_nodes(op="output")
    return InPieces(takes, tuple(Step(part, part.module.forward, ()) for part in parts), output.args[0])(*args)


@pytest.mark.parametrize("f", FUNCTIONS)
def test_parts_divided_anywhere_give_what_the_graph_gives(f: Callable[..., Any]) -> None:
    x, w = torch.randn(4, 4), torch.randn(4, 4)
    gm = graph_of(f, x.clone(), w)
    for index in range(len(units_of(gm.graph))):
        given, expected = x.clone(), x.clone()
        found = run_divided(gm, {index}, [given, w])
        assert all(map(torch.equal, found, f(expected, w))) and torch.equal(given, expected)


def test_units_keep_a_tuple_with_its_items() -> None:
    gm = graph_of(split_and_join, torch.randn(4, 4), torch.randn(4, 4))
    names = [[node.name for node in unit] for unit in units_of(gm.graph)]
    assert ["chunk", "a", "b"] in names


def test_contexts_are_what_enters_and_leaves_autocast() -> None:
    def f(x: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = x @ x
        return y + 1

    units = units_of(graph_of(f, torch.randn(4, 4)).graph)
    found = [[node.name for node in units[index]] for index in sorted(contexts(units))]
    assert found == [["_enter_autocast"], ["_exit_autocast"]]


def test_levels_of_a_transform_are_one_unit() -> None:
    def f(x: Tensor) -> Tensor:
        return torch.vmap(lambda row: row.sin() * 2)(x).cos()

    units = units_of(graph_of(f, torch.randn(4, 4)).graph)
    (level,) = [unit for unit in units if any("increment_nesting" in str(node.target) for node in unit)]
    assert any("decrement_nesting" in str(node.target) for node in level)
    assert any(node.target == "sin" for node in level)


def test_first_units_return_what_is_read_after_them() -> None:
    gm = graph_of(split_and_join, torch.randn(4, 4), torch.randn(4, 4))
    units = units_of(gm.graph)
    first = first_units(gm, units[:2])
    (output,) = first.graph.find_nodes(op="output")
    assert [node.name for node in output.all_input_nodes] == ["a", "b"]


def test_held_tensors_become_arguments() -> None:
    class Adds(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.b = torch.nn.Parameter(torch.ones(3))

        def forward(self, x: Tensor) -> Tensor:
            return x + self.b

    gm = fx.symbolic_trace(Adds())
    (own,) = gm.graph.find_nodes(op="get_attr")
    flat, copies = without_held(gm, [own])
    assert not flat.graph.find_nodes(op="get_attr") and copies[own].op == "placeholder"
    assert torch.equal(flat(torch.ones(3), torch.full((3,), 2.0)), torch.full((3,), 3.0))


def test_parts_have_the_functions_that_their_calls_read() -> None:
    """A graph may hold functions that are no graphs, as those of a leaf function: no part is given one."""
    root = torch.nn.Module()
    setattr(root, "function", lambda x: x * 2)  # noqa: B010 -- no module, nor a tensor
    graph = fx.Graph()
    x = graph.placeholder("x")
    function = graph.get_attr("function")
    middle = graph.call_function(lambda function, x: function(x), (function, graph.call_function(torch.sin, (x,))))
    graph.output((graph.call_function(torch.cos, (middle,)),))
    gm = fx.GraphModule(root, graph)
    given = torch.ones(3)
    parts = divided(gm, units_of(gm.graph), {1})
    assert [part.takes for part in parts] == [("x",), ("sin",), ("_lambda_",)]
    (found,) = run_divided(gm, {1}, [given])
    assert torch.equal(found, (given.sin() * 2).cos())
