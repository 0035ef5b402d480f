"""Where the nodes of graphs come from: lines and modules, in forward, in backward and in exports."""

from __future__ import annotations

import pathlib
from typing import Any

import pytest
import torch
from torch import Tensor, fx, nn
from torch._functorch.aot_autograd import aot_export_module as export_of_torch

from assay.compiler.entry.aot import aot_module_simplified, make_boxed_func
from assay.compiler.entry.dynamo import compile_fx
from assay.compiler.entry.export import aot_export_module

HERE = pathlib.Path(__file__).name


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 3)

    def forward(self, x: Tensor) -> Any:
        return self.linear(x).relu()


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = Block()
        self.blocks = nn.ModuleList([Block()])

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        y = self.first(x) + x
        for block in self.blocks:
            y = block(y) * y
        return (y.sum(),)


def traced(module: nn.Module) -> fx.GraphModule:
    """A graph whose nodes know their lines, as Dynamo's do."""
    tracer = fx.Tracer()
    tracer.record_stack_traces = True
    return fx.GraphModule(module, tracer.trace(module))


def calls(graph: fx.GraphModule) -> list[fx.Node]:
    return [node for node in graph.graph.nodes if node.op == "call_function"]


def test_graphs_for_compilers_have_the_lines_of_their_module() -> None:
    graphs: list[fx.GraphModule] = []

    def compiler(gm: fx.GraphModule, inputs: object) -> Any:
        graphs.append(gm)
        return make_boxed_func(gm.forward)

    gm, x = traced(Net()), torch.randn(2, 3, requires_grad=True)
    aot_module_simplified(gm, (x,), compiler)(x)[0].backward()
    forward, backward = graphs
    for node in (*calls(forward), *calls(backward)):
        assert node.stack_trace and HERE in node.stack_trace, node.format_node()
    (product,) = [node for node in calls(forward) if node.target is torch.ops.aten.mul.Tensor]
    of_product = [node for node in calls(backward) if node.stack_trace == product.stack_trace]
    assert [node.target for node in of_product if node.target is torch.ops.aten.mul.Tensor]
    modules = {path for node in calls(backward) for path in node.meta.get("fwd_nn_module_stack", {})}
    assert {"first.linear", "blocks.0.linear"} <= modules


def test_backward_of_a_write_has_its_line() -> None:
    class Writes(nn.Module):
        def forward(self, x: Tensor) -> tuple[Tensor]:
            y = x.clone()
            y.mul_(3)
            return ((y + y.sin()).cos(),)

    told: list[fx.Node] = []

    def inner(gm: fx.GraphModule, inputs: object, **keywords: Any) -> Any:
        told.extend(calls(gm))
        return gm

    x = torch.randn(3, requires_grad=True)
    compiled = compile_fx(traced(Writes()), [x], inner)
    (gradient,) = torch.autograd.grad(compiled(x)[0].sum(), x)
    torch.testing.assert_close(gradient, torch.autograd.grad(Writes()(x)[0].sum(), x)[0])
    assert told and all(node.stack_trace and HERE in node.stack_trace for node in told)


@pytest.mark.parametrize("trace_joint", [False, True])
def test_exports_have_modules_and_lines(trace_joint: bool) -> None:
    module, x = Net(), torch.randn(2, 3)
    graph, _ = aot_export_module(module, (x,), trace_joint=trace_joint, output_loss_index=0 if trace_joint else None)
    wanted, _ = export_of_torch(module, (x,), trace_joint=False)
    assert isinstance(wanted, fx.GraphModule)
    forward = [node for node in calls(graph) if "nn_module_stack" in node.meta]
    skipped = torch.ops.aten.detach.default
    found = [(n.target, list(n.meta["nn_module_stack"].values())) for n in forward if n.target is not skipped]
    assert found == [(n.target, list(n.meta["nn_module_stack"].values())) for n in calls(wanted)]
    assert [n.stack_trace for n in forward if n.target is not skipped] == [n.stack_trace for n in calls(wanted)]
    backward = [node for node in calls(graph) if "fwd_nn_module_stack" in node.meta]
    assert bool(backward) is trace_joint
    assert all(HERE in (node.stack_trace or "") for node in (*forward, *backward))


def test_exports_of_graphs_keep_what_their_nodes_say() -> None:
    gm, x = traced(Net()), torch.randn(2, 3)
    graph, _ = aot_export_module(gm, (x,), trace_joint=False)
    said = {node.stack_trace for node in gm.graph.nodes if node.op not in ("placeholder", "output", "get_attr")}
    assert {node.stack_trace for node in calls(graph)} == said


def test_an_export_leaves_no_hooks_behind() -> None:
    class Fails(nn.Module):
        def forward(self, x: Tensor) -> Any:
            raise ValueError("as it is")

    before = len(nn.modules.module._global_forward_pre_hooks), len(nn.modules.module._global_forward_hooks)
    with pytest.raises(ValueError, match="as it is"):
        aot_export_module(nn.Sequential(Fails()), (torch.ones(2),), trace_joint=False)
    assert (len(nn.modules.module._global_forward_pre_hooks), len(nn.modules.module._global_forward_hooks)) == before
