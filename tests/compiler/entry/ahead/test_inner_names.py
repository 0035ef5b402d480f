"""Graphs of calls with wrappers: their inner tensors are inputs like others, in the place of the wrapper."""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch._dynamo import mark_static_address
from torch.testing._internal.two_tensor import TwoTensor

from assay.compiler.entry.aot import aot_function, make_boxed_func
from assay.compiler.entry.dynamo import compile_fx


def names(graph: fx.GraphModule) -> list[str]:
    return [node.name for node in graph.graph.find_nodes(op="placeholder")]


def pair(size: int = 3) -> TwoTensor:
    return TwoTensor(torch.ones(size, requires_grad=True), torch.full((size,), 2.0, requires_grad=True))


def test_inner_tensors_are_numbered_with_the_other_inputs() -> None:
    graphs: list[fx.GraphModule] = []

    def compiler(graph: fx.GraphModule, _: object) -> Any:
        graphs.append(graph)
        return make_boxed_func(graph.forward)

    def f(x: Tensor, y: Tensor, z: Tensor) -> Tensor:
        return x.sin() * y + z.exp() * 2

    given = (torch.ones(3, requires_grad=True), pair(), pair())
    result = aot_function(f, compiler)(*given)
    assert names(graphs[0]) == [f"primals_{index + 1}" for index in range(5)]
    result.sum().backward()
    forward, backward = graphs
    assert names(backward)[-2:] == ["tangents_1", "tangents_2"]
    assert set(names(backward)[:-2]) <= {node.name for node in forward.graph.nodes}
    again = (given[0].detach().requires_grad_(), pair(), pair())
    f(*again).sum().backward()
    for got, want in zip(given, again, strict=True):
        torch.testing.assert_close(got.grad.a, want.grad.a)  # type: ignore[union-attr]
        torch.testing.assert_close(got.grad.b, want.grad.b)  # type: ignore[union-attr]


def test_graphs_of_plain_tensors_keep_their_names() -> None:
    graphs: list[fx.GraphModule] = []

    def compiler(graph: fx.GraphModule, _: object) -> Any:
        graphs.append(graph)
        return make_boxed_func(graph.forward)

    x = torch.ones(3, requires_grad=True)
    aot_function(lambda x, y: (x.sin(), y.cos()), compiler)(x, x.detach().requires_grad_())[1].sum().backward()
    assert names(graphs[0]) == ["primals_1", "primals_2"] and names(graphs[1])[-1] == "tangents_2"


def test_the_inner_tensors_of_what_lies_still_are_told_to_lie_still() -> None:
    told: list[list[int]] = []

    def inner(graph: fx.GraphModule, inputs: object, static_input_idxs: Any = (), **_: object) -> Any:
        told.append(list(static_input_idxs))
        return make_boxed_func(graph.forward)

    marked = TwoTensor(torch.ones(4), torch.ones(4))
    mark_static_address(marked, guard=False)
    backend = functools.partial(compile_fx, inner_compile=inner)
    compiled = torch.compile(lambda x, y, z: x + y + z, backend=backend, dynamic=False)
    torch.testing.assert_close(compiled(torch.ones(4), marked, torch.ones(4)).a, torch.full((4,), 3.0))
    module = nn.Linear(4, 4)
    module.weight = nn.Parameter(TwoTensor(torch.randn(4, 4), torch.randn(4, 4)).requires_grad_())
    torch.compile(module, backend=backend)(torch.ones(4))
    assert told == [[1, 2], [0, 1, 2]]
