"""Exports above autograd: composite operators whole, modes as calls, held to torch's own."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, fx, nn
from torch._functorch.aot_autograd import aot_export_module as export_of_torch
from torch._higher_order_ops.foreach_map import foreach_map
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from assay.compiler.entry.export import aot_export_module
from assay.compiler.errors import ExportError

aten = torch.ops.aten


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 3)
        self.norm = nn.BatchNorm1d(3)
        self.register_buffer("count", torch.zeros(3))

    def forward(self, x: Tensor) -> Any:
        self.count.add_(1)
        y = self.norm(self.linear(x))
        with torch.no_grad():
            z = nn.functional.silu(y) * 2
        return (nn.functional.layer_norm(y + z, (3,)).matmul(y.t()), self.count[1:])


class Attends(nn.Module):
    def forward(self, x: Tensor) -> Any:
        y = nn.functional.scaled_dot_product_attention(x, x, x)
        return (nn.functional.dropout(y, 0.5, False), y.reshape(-1), y.contiguous(), y.to(torch.float64))


class Writes(nn.Module):
    """A parameter, written where gradients are off, and an input through a view of it."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(3))

    def forward(self, x: Tensor) -> Any:
        with torch.no_grad():
            self.weight.mul_(2)
        x.view(-1)[:2].add_(1)
        return (x * self.weight, x.flatten().chunk(2)[0])


class Casts(nn.Module):
    def forward(self, x: Tensor) -> Any:
        with torch.autocast("cpu", torch.bfloat16):
            y = x @ x.t()
        return (y.float(),)


MODULES = {
    "net": (Net, (4, 3)),
    "attends": (Attends, (2, 4, 8)),
    "writes": (Writes, (2, 3)),
    "in eval": (lambda: Net().eval(), (4, 3)),
}


def targets(graph: fx.GraphModule) -> list[Any]:
    return [node.target for node in graph.graph.nodes if node.op == "call_function"]


def run(graph: fx.GraphModule, module: nn.Module, x: Tensor) -> list[Any]:
    state = [*module.parameters(), *module.buffers()]
    return list(graph(*(value.detach().clone() for value in state), x.clone()))


@pytest.mark.parametrize("name", MODULES)
def test_pre_dispatch_export_is_torchs(name: str) -> None:
    make, shape = MODULES[name]
    module, x = make(), torch.randn(*shape)
    graph, signature = aot_export_module(module, (x,), trace_joint=False, pre_dispatch=True)
    wanted, told = export_of_torch(module, (x,), trace_joint=False, pre_dispatch=True)
    assert isinstance(wanted, fx.GraphModule)
    assert sorted(map(str, targets(graph))) == sorted(map(str, targets(wanted))), "but for the places of views"
    torch.testing.assert_close(run(graph, module, x), run(wanted, module, x), rtol=0, atol=0)
    for field in ("parameters", "buffers", "in_spec", "out_spec"):
        assert getattr(signature, field) == getattr(told, field)
    for field in ("buffers_to_mutate", "parameters_to_mutate"):
        assert list(getattr(signature, field).values()) == list(getattr(told, field).values())
    assert len(signature.user_inputs_to_mutate) == len(told.user_inputs_to_mutate)


def test_pre_dispatch_export_keeps_composite_operators_and_modes() -> None:
    graph, _ = aot_export_module(Net(), (torch.randn(4, 3),), trace_joint=False, pre_dispatch=True)
    found = targets(graph)
    assert {aten.linear.default, aten.layer_norm.default, aten.matmul.default} <= set(found)
    switches = [node.args for node in graph.graph.find_nodes(op="call_function", target=torch._C._set_grad_enabled)]
    assert switches == [(False,), (True,)]
    below, _ = aot_export_module(Net(), (torch.randn(4, 3),), trace_joint=False)
    assert aten.linear.default not in targets(below) and torch._C._set_grad_enabled not in targets(below)
    (linear,) = graph.graph.find_nodes(op="call_function", target=aten.linear.default)
    assert "linear" in linear.meta["nn_module_stack"] and "in forward" in linear.meta["stack_trace"]


def test_pre_dispatch_export_notes_autocast() -> None:
    x = torch.randn(3, 3)
    graph, _ = aot_export_module(Casts(), (x,), trace_joint=False, pre_dispatch=True)
    names = [getattr(target, "__name__", "") for target in targets(graph)]
    assert names.index("_enter_autocast") < names.index("_exit_autocast")
    torch.testing.assert_close(list(graph(x)), list(Casts()(x)))


def test_pre_dispatch_export_keeps_sizes_symbolic() -> None:
    mode = FakeTensorMode(shape_env=ShapeEnv())
    module = Net().eval()
    graph, _ = aot_export_module(module, (mode.from_tensor(torch.randn(4, 3)),), trace_joint=False, pre_dispatch=True)
    x = torch.randn(7, 3)
    torch.testing.assert_close(run(graph, module, x)[1], module(x)[0].detach())


def test_pre_dispatch_export_runs_as_eager_and_differentiates() -> None:
    """Its graph is one that autograd records again."""
    module, x = Net(), torch.randn(4, 3)
    graph, _ = aot_export_module(module, (x,), trace_joint=False, pre_dispatch=True)
    state = [v.detach().clone().requires_grad_(v.requires_grad) for v in (*module.parameters(), *module.buffers())]
    outputs = graph(*state, x)
    got = torch.autograd.grad(outputs[-2].square().sum(), state[:2])
    want = torch.autograd.grad(module(x)[0].square().sum(), [*module.linear.parameters()])
    torch.testing.assert_close(got, want)


def test_pre_dispatch_export_leaves_no_mode_behind() -> None:
    class Fails(nn.Module):
        def forward(self, x: Tensor) -> Any:
            torch._C._set_grad_enabled(False)
            raise ValueError("as it is")

    with pytest.raises(ValueError, match="as it is"):
        aot_export_module(Fails(), (torch.ones(2),), trace_joint=False, pre_dispatch=True)
    assert torch.is_grad_enabled() and torch._C._len_torch_function_stack() == 0
    key = torch._C._TorchDispatchModeKey.FUNCTIONAL
    assert torch._ops._get_dispatch_mode_pre_dispatch(key) is None


def test_pre_dispatch_export_refuses_an_unknown_higher_order_operator_as_one_below_does() -> None:
    class Mapped(nn.Module):
        def forward(self, x: Tensor) -> Any:
            return tuple(foreach_map(torch.sin, [x]))

    for pre_dispatch in (False, True):
        with pytest.raises(ExportError, match="higher-order operator"):
            aot_export_module(Mapped(), (torch.ones(3),), trace_joint=False, pre_dispatch=pre_dispatch)
