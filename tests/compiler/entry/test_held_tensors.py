"""Graphs that hold tensors of their own, as Dynamo's graphs of optimizers do: they are inputs like any other."""

import copy

import pytest
import torch

from assay.compiler import journal
from assay.compiler.entry import dynamo as fx

OPTIMIZERS = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=0.01),
    "adam": lambda p: torch.optim.Adam(p, lr=0.01, foreach=True),
    "adamw": lambda p: torch.optim.AdamW(p, lr=0.01, foreach=False),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_fx_optimizer_steps_are_compiled_and_written_once(name: str) -> None:
    torch._dynamo.reset()
    torch.manual_seed(0)
    first = [torch.nn.Parameter(torch.randn(7, 5)), torch.nn.Parameter(torch.randn(3))]
    second = copy.deepcopy(first)
    sides = [(parameters, OPTIMIZERS[name](parameters)) for parameters in (first, second)]
    compiled = torch.compile(sides[0][1].step, backend=fx.assay)
    before = journal.totals()["eager_graphs"]
    for _ in range(3):
        gradients = [torch.randn(parameter.shape) for parameter in first]
        for (parameters, _), step in zip(sides, (compiled, sides[1][1].step), strict=True):
            for parameter, gradient in zip(parameters, gradients, strict=True):
                parameter.grad = gradient.clone()
            step()
    assert journal.totals()["eager_graphs"] == before
    torch.testing.assert_close(first, second, rtol=1e-5, atol=1e-6)
    states = [list(optimizer.state.values()) for _, optimizer in sides]
    torch.testing.assert_close(*states, rtol=1e-5, atol=1e-6)


def test_fx_held_tensor_is_read_as_it_is_at_each_call() -> None:
    holder = torch.nn.Module()
    holder.register_buffer("scale", torch.ones(3))
    graph = torch.fx.Graph()
    x = graph.placeholder("x")
    graph.output((graph.call_function(torch.mul, (x, graph.get_attr("scale"))),))
    module = torch.fx.GraphModule(holder, graph)
    compiled = fx.compile_fx(module, [torch.zeros(3)])
    assert compiled(torch.full((3,), 2.0))[0].tolist() == [2.0, 2.0, 2.0]
    module.scale.mul_(5)
    assert compiled(torch.full((3,), 2.0))[0].tolist() == [10.0, 10.0, 10.0]
    module.scale = torch.full((3,), 7.0)
    assert compiled(torch.full((3,), 2.0))[0].tolist() == [14.0, 14.0, 14.0]
