"""`aot_export_joint_simple`: a function as one graph, alone or with its gradients, held to eager and to torch's own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._functorch.aot_autograd import aot_export_joint_simple as export_of_torch
from torch._guards import TracingContext

from assay.compiler.entry.aot import default_partition
from assay.compiler.entry.export import aot_export_joint_simple

Function = Callable[..., tuple[Any, ...]]


def one_output_twice(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    z = x * y
    return z, z


def view_and_base(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    z = x * y
    return z.view(-1, 1), z.exp()


FUNCTIONS: dict[str, Function] = {
    "three": lambda x, y: (x * y, x + 2, y.sum()),
    "one_output_twice": one_output_twice,
    "view_and_base": view_and_base,
    "constants": lambda x, y: (x * y, None, 3),
    "no_gradient": lambda x, y: (x * x, (y * 2).detach()),
}


def arguments() -> tuple[Tensor, Tensor]:
    return torch.tensor([1.0, -2.0, 3.0]), torch.tensor([0.5, 1.5, -1.0], requires_grad=True)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_export_joint_simple_is_torchs_and_eagers(name: str) -> None:
    function = FUNCTIONS[name]
    x, y = arguments()
    graph = aot_export_joint_simple(function, (x, y), trace_joint=True)
    # torch's refuses a differentiable view of a tensor that the function made itself
    theirs = export_of_torch(function, (x, y), trace_joint=True) if name != "view_and_base" else graph
    results = function(x, y)
    differentiable = [v for v in results if isinstance(v, Tensor) and v.requires_grad]
    if not differentiable:
        torch.testing.assert_close(graph(x, y), theirs(x, y))
        return
    tangents = [torch.linspace(1, 2, v.numel()).view(v.shape) for v in differentiable]
    got, gradients = graph([x, y], tangents)
    torch.testing.assert_close((got, gradients), theirs([x, y], tangents), rtol=0, atol=0)
    torch.testing.assert_close(got, results)
    assert gradients[0] is None
    torch.testing.assert_close(gradients[1], torch.autograd.grad(differentiable, y, tangents)[0])
    mine, want = ([n.name for n in g.graph.find_nodes(op="placeholder")] for g in (graph, theirs))
    assert mine == want


@pytest.mark.parametrize("name", FUNCTIONS)
def test_export_joint_simple_without_gradients_keeps_the_calling_convention(name: str) -> None:
    x, y = arguments()
    graph = aot_export_joint_simple(FUNCTIONS[name], (x, y), trace_joint=False)
    assert [n.name for n in graph.graph.find_nodes(op="placeholder")] == ["arg0_1", "arg1_1"]
    torch.testing.assert_close(graph(x, y), FUNCTIONS[name](x, y))


def test_export_joint_simple_can_be_partitioned() -> None:
    x, y = arguments()
    joint = aot_export_joint_simple(FUNCTIONS["three"], (x, y), trace_joint=True)
    joint.graph.set_codegen(torch.fx.graph.CodeGen())
    joint.recompile()
    forward, backward = default_partition(joint, None, num_fwd_outputs=3)
    *results, saved = forward(x, y)
    torch.testing.assert_close(tuple(results), FUNCTIONS["three"](x, y))
    gradients = backward(saved, torch.ones(3), torch.ones(()))
    torch.testing.assert_close(gradients[1], x + 1)


@pytest.mark.parametrize("dynamic", [False, True])
def test_export_joint_simple_in_a_backend_has_the_sizes_that_dynamo_knows(dynamic: bool) -> None:
    """A backend is given real tensors. Dynamo's mode knows of each size whether it is a symbol."""
    graphs: list[Any] = []

    def backend(graph: torch.fx.GraphModule, inputs: list[Any]) -> Callable[..., Any]:
        mode = TracingContext.get().fake_mode
        assert mode is not None
        with mode:
            graphs.append(aot_export_joint_simple(graph, tuple(inputs), trace_joint=False))
        made: Callable[..., Any] = graphs[-1]
        return made

    model = torch.nn.Linear(3, 2)
    torch._dynamo.reset()
    compiled = torch.compile(lambda x: model(x) * x.shape[0], backend=backend, dynamic=dynamic)
    for rows in (4, 6):
        x = torch.arange(rows * 3.0).view(rows, 3)
        torch.testing.assert_close(compiled(x), model(x) * rows)
    assert len(graphs) == (1 if dynamic else 2)
