"""Writes of inputs that graphs make themselves: in training too, and never where something else would change."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, fx, nn
from torch.testing._internal.two_tensor import TwoTensor

from assay.compiler.entry.aot import aot_function, aot_module, aot_module_simplified, make_boxed_func

COPY = torch.ops.aten.copy_.default


def in_front(x: Tensor, y: Tensor) -> Tensor:
    with torch.no_grad():
        x.mul_(2)
    return x + y


def through_a_view(x: Tensor, y: Tensor) -> Tensor:
    part = x.view(-1)
    with torch.no_grad():
        part.mul_(2)
    return x * y


def copied_before(x: Tensor, y: Tensor) -> Tensor:
    z = x.detach().clone() * y
    with torch.no_grad():
        x.mul_(2)
    return z + x


def saved_behind(x: Tensor, y: Tensor) -> Tensor:
    with torch.no_grad():
        x.mul_(2)
    return x.detach() * y


def transposed(x: Tensor, y: Tensor) -> Tensor:
    x.t_()
    x.mul_(2)
    return x + y


def recorded(x: Tensor, y: Tensor) -> Tensor:
    x.mul_(y)
    return x + 1


def of_data(x: Tensor, y: Tensor) -> Tensor:
    x.data.mul_(2)
    return x + y


torch.library.define("kept_writes::double", "(Tensor(a!) x) -> ()")


@torch.library.impl("kept_writes::double", "CompositeExplicitAutograd")
def double(x: Tensor) -> None:
    """Of its write no version counter tells."""
    x.data.mul_(2)


@torch.library.register_fake("kept_writes::double")
def no_result(x: Tensor) -> None:
    pass


def by_an_operator(x: Tensor, y: Tensor) -> Tensor:
    torch.ops.kept_writes.double(x.detach())
    return x + y


FUNCTIONS: dict[str, tuple[Callable[[Tensor, Tensor], Tensor], int]] = {
    "in_front": (in_front, 1),
    "through_a_view": (through_a_view, 0),
    "copied_before": (copied_before, 1),
    "saved_behind": (saved_behind, 0),
    "transposed": (transposed, 0),
    "recorded": (recorded, 0),
    "of_data": (of_data, 0),
    "by_an_operator": (by_an_operator, 0),
}
"""Functions that write their first argument, with how many writes a graph makes itself where gradients flow."""


def inputs(grad: bool) -> tuple[Tensor, Tensor, Tensor]:
    leaf = torch.arange(9.0).reshape(3, 3).requires_grad_(grad)
    return leaf, leaf + 1, torch.full((3, 3), 3.0).requires_grad_(grad)


def observed(run: Callable[[Tensor, Tensor], Tensor], grad: bool) -> tuple[list[Tensor | None], tuple[object, ...]]:
    """What a call leaves: values, and what else can be seen of the written input."""
    leaf, x, y = inputs(grad)
    result = run(x, y)
    if grad:
        result.sum().backward()
    return [result, x, leaf.grad, y.grad], (x._version, x.stride(), x.grad_fn is None)


def writes(graph: fx.GraphModule) -> int:
    return len(graph.graph.find_nodes(op="call_function", target=COPY))


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_kept_writes_are_eagers(name: str, grad: bool) -> None:
    function, kept = FUNCTIONS[name]
    graphs: list[fx.GraphModule] = []

    def compiler(graph: fx.GraphModule, _: object) -> Any:
        graphs.append(graph)
        return make_boxed_func(graph.forward)

    compiled = aot_function(function, compiler, keep_inference_input_mutations=True)
    want = observed(function, grad)
    for _ in range(2):
        got = observed(compiled, grad)
        torch.testing.assert_close(got[0], want[0])
        assert got[1] == want[1]
    assert writes(graphs[0]) == (kept if grad else int(name != "transposed"))


class Counted(nn.Module):
    """Counts its calls in a buffer, which no gradient needs, and keeps a mean that its gradient needs."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(3))
        self.register_buffer("calls", torch.zeros(3))
        self.register_buffer("mean", torch.zeros(3))

    def forward(self, x: Tensor) -> Tensor:
        self.calls.add_(1)
        self.mean.copy_(self.mean * 0.9 + x.detach().mean(0) * 0.1)
        return (x * self.scale * self.mean).sum()


def test_kept_writes_of_buffers_stand_in_the_forward() -> None:
    eager, graphs = Counted(), list[fx.GraphModule]()
    mine = copy.deepcopy(eager)

    def compiler(graph: fx.GraphModule, _: object) -> Any:
        graphs.append(graph)
        return make_boxed_func(graph.forward)

    compiled = aot_module(mine, compiler, keep_inference_input_mutations=True)
    x = torch.arange(6.0).reshape(2, 3)
    for _ in range(3):
        for run in (eager, compiled):
            run(x).backward()
    torch.testing.assert_close(dict(mine.named_buffers()), dict(eager.named_buffers()))
    torch.testing.assert_close(mine.scale.grad, eager.scale.grad)
    assert [writes(graph) for graph in graphs] == [1, 0], "the mean is saved for backward, and written behind the graph"


def test_kept_writes_are_of_the_line_that_writes() -> None:
    class Writes(nn.Module):
        def forward(self, x: Tensor) -> tuple[Tensor]:
            part = x[0]
            part.mul_(2)
            return (x + x,)

    tracer, graphs = fx.Tracer(), list[fx.GraphModule]()
    tracer.record_stack_traces = True
    module = fx.GraphModule(Writes(), tracer.trace(Writes()))

    def compiler(graph: fx.GraphModule, _: object) -> Any:
        graphs.append(graph)
        return graph.forward

    aot_module_simplified(module, [torch.ones(2, 3)], compiler, keep_inference_input_mutations=True)
    (call,) = graphs[0].graph.find_nodes(op="call_function", target=COPY)
    assert "part.mul_(2)" in call.meta["stack_trace"]


def test_writes_of_wrappers_stand_behind_the_graph() -> None:
    graphs: list[fx.GraphModule] = []

    def compiler(graph: fx.GraphModule, _: object) -> Any:
        graphs.append(graph)
        return make_boxed_func(graph.forward)

    def f(x: Tensor) -> Tensor:
        x.mul_(2)
        return x + 1

    x = TwoTensor(torch.ones(3), torch.zeros(3))
    y = aot_function(f, compiler, keep_inference_input_mutations=True)(x)
    assert torch.equal(x.a, torch.full((3,), 2.0)) and torch.equal(y.b, torch.ones(3)) and writes(graphs[0]) == 0
