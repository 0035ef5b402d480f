"""`aot_export_module`: values, gradients, written buffers and the signature, held to eager and to torch's own."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, fx, nn
from torch._functorch.aot_autograd import aot_export_module as export_of_torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from assay.compiler.entry.export import GraphSignature, aot_export_module
from assay.compiler.errors import Unsupported


class Calls(nn.Module):
    """A parameter, two buffers and a forward given from outside."""

    def __init__(self, forward: Callable[..., Any]) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.linspace(0.5, 2.0, 3))
        self.register_buffer("seen", torch.ones(3))
        self.register_buffer("count", torch.zeros((), dtype=torch.long))
        self._forward = forward

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self._forward(self, *args, **kwargs)


class Frozen(Calls):
    """No parameter of its own requires grad."""

    def __init__(self, forward: Callable[..., Any]) -> None:
        super().__init__(forward)
        self.requires_grad_(False)


class Normalised(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(4)
        self.head = nn.Linear(4, 2)

    def forward(self, x: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        y = self.head(self.norm(x))
        return nn.functional.mse_loss(y, target), y.detach()


def writes(m: Any, x: Tensor) -> tuple[Tensor, ...]:
    m.seen.add_(x.mean())
    m.count.add_(1)
    y = x * m.weight * m.seen
    return y.sum(), y.detach(), m.seen, m.seen.view(-1), m.count


def writes_input(m: Any, x: Tensor) -> tuple[Tensor, ...]:
    x.mul_(2)
    return (m.weight * x).sum(), x, x[1:]


def loss_is_a_view(m: Any, x: Tensor) -> tuple[Tensor, ...]:
    return (x * m.weight).sum(0, keepdim=True).view(1, 1), x.view(3, 1)


def nested(m: Any, x: Tensor, *, scale: dict[str, Tensor]) -> Any:
    return (x * m.weight).sum() * scale["by"].sum(), {"x": x, "n": None, "three": 3}


X = torch.tensor([1.0, -2.0, 3.0])

MODULES: dict[str, tuple[Callable[[], nn.Module], tuple[Tensor, ...]]] = {
    "writes": (lambda: Calls(writes), (X,)),
    "writes_input": (lambda: Calls(writes_input), (X,)),
    "loss_is_a_view": (lambda: Calls(loss_is_a_view), (X,)),
    "input_with_gradient": (
        lambda: Calls(lambda m, x: ((x * m.weight).exp().sum(),)),
        (torch.ones(3, requires_grad=True),),
    ),
    "normalised": (Normalised, (torch.linspace(-1, 1, 12).view(3, 4), torch.ones(3, 2))),
    "dropout": (lambda: Calls(lambda m, x: (nn.functional.dropout(x * m.weight, 0.0).sum(),)), (X,)),
}


def run(graph: fx.GraphModule, mod: nn.Module, leaves: list[Any]) -> list[Any]:
    """The graph's outputs for the module's own state, called with copies."""
    state = [*dict(mod.named_parameters()).values(), *dict(mod.named_buffers()).values()]
    copies = [v.detach().clone() if isinstance(v, Tensor) else v for v in [*state, *leaves]]
    return list(fx.Interpreter(graph).run(*copies))


def names(signature: GraphSignature, graph: fx.GraphModule) -> dict[str, Any]:
    """A signature with the nodes' names replaced by their positions, which is what two exports have in common."""
    inputs = {n.name: i for i, n in enumerate(graph.graph.find_nodes(op="placeholder"))}
    returned = [getattr(v, "name", None) for v in next(iter(reversed(graph.graph.nodes))).args[0]]
    backward = signature.backward_signature
    return {
        "parameters": signature.parameters,
        "buffers": signature.buffers,
        "user_inputs": [inputs[name] for name in signature.user_inputs],
        "user_outputs": [n if n is None else returned.index(n) for n in signature.user_outputs],
        "inputs_to_parameters": {inputs[k]: v for k, v in signature.inputs_to_parameters.items()},
        "inputs_to_buffers": {inputs[k]: v for k, v in signature.inputs_to_buffers.items()},
        "buffers_to_mutate": {returned.index(k): v for k, v in signature.buffers_to_mutate.items()},
        "parameters_to_mutate": {returned.index(k): v for k, v in signature.parameters_to_mutate.items()},
        "user_inputs_to_mutate": {returned.index(k): inputs[v] for k, v in signature.user_inputs_to_mutate.items()},
        "to_parameters": backward and {returned.index(k): v for k, v in backward.gradients_to_parameters.items()},
        "to_inputs": backward and {returned.index(k): inputs[v] for k, v in backward.gradients_to_user_inputs.items()},
        "in_spec": signature.in_spec,
        "out_spec": signature.out_spec,
        "tokens": (signature.input_tokens, signature.output_tokens),
        "count": (len(inputs), len(returned)),
    }


@pytest.mark.parametrize("trace_joint", [False, True])
@pytest.mark.parametrize("name", MODULES)
def test_export_module_is_torchs(name: str, trace_joint: bool) -> None:
    """Inputs, outputs, signature and values; but the name of the loss, which torch reads at the wrong place."""
    make, args = MODULES[name]
    mod = make()
    options: dict[str, Any] = {"trace_joint": trace_joint, "output_loss_index": 0 if trace_joint else None}
    graph, signature = aot_export_module(mod, args, **options)
    want_graph, want_signature = export_of_torch(mod, args, **options)
    assert names(signature, graph) == names(want_signature, want_graph)
    torch.testing.assert_close(run(graph, mod, list(args)), run(want_graph, mod, list(args)), rtol=0, atol=0)
    for node in graph.graph.nodes:
        assert not (isinstance(node.target, torch._ops.OpOverload) and node.target._schema.is_mutable), node


OURS_ALONE = {
    "loss_is_an_input": (lambda: Frozen(lambda m, x: (x, x.detach() * 2)), (torch.ones((), requires_grad=True),))
}
"""torch's own fails on these."""


@pytest.mark.parametrize("name", {**MODULES, **OURS_ALONE})
def test_export_module_joint_is_eager(name: str) -> None:
    make, args = {**MODULES, **OURS_ALONE}[name]
    mod = make()
    graph, signature = aot_export_module(mod, args, trace_joint=True, output_loss_index=0)
    got = dict(zip(returned_roles(signature), run(graph, mod, list(args)), strict=True))
    eager, eager_args = copy.deepcopy(mod), [a.detach().clone().requires_grad_(a.requires_grad) for a in args]
    results = eager(*eager_args)
    results[0].sum().backward()
    wanted: dict[str, Any] = {f"output {i}": value for i, value in enumerate(results)}
    wanted |= {f"gradient of {n}": p.grad for n, p in eager.named_parameters() if p.requires_grad}
    wanted |= {f"gradient of {i}": a.grad for i, a in enumerate(eager_args) if a.requires_grad}
    changed = {n: b for n, b in eager.named_buffers() if not torch.equal(b, dict(mod.named_buffers())[n])}
    wanted |= {f"written {n}": value for n, value in changed.items()}
    wanted |= {f"written {i}": a for i, a in enumerate(eager_args) if not torch.equal(a, args[i])}
    assert got.keys() == wanted.keys()
    for role, value in wanted.items():
        torch.testing.assert_close(got[role], value.detach(), msg=lambda text, role=role: f"{role}: {text}")


def returned_roles(signature: GraphSignature) -> list[str]:
    """What the outputs are, read off the signature alone."""
    inputs = {name: str(index) for index, name in enumerate(signature.user_inputs)}
    backward = signature.backward_signature
    assert backward is not None and backward.loss_output == signature.user_outputs[0]
    written = [*signature.buffers_to_mutate.values(), *(inputs[v] for v in signature.user_inputs_to_mutate.values())]
    gradients = [*backward.gradients_to_parameters.values()]
    gradients += [inputs[v] for v in backward.gradients_to_user_inputs.values()]
    outputs = [f"output {index}" for index, _ in enumerate(signature.user_outputs)]
    return [*(f"written {w}" for w in written), *outputs, *(f"gradient of {g}" for g in gradients)]


def test_export_module_takes_keywords_constants_and_any_structure() -> None:
    mod = Calls(nested)
    graph, signature = aot_export_module(mod, (X,), trace_joint=False, kwargs={"scale": {"by": X}})
    assert signature.user_inputs == ["arg3_1", "arg4_1"]
    assert [n.name for n in graph.graph.find_nodes(op="placeholder")][:3] == ["arg0_1", "arg1_1", "arg2_1"]
    outputs = run(graph, mod, [X, X])
    want, rest = mod(X, scale={"by": X})
    torch.testing.assert_close(outputs[0], want.detach())
    assert torch.equal(outputs[1], rest["x"]) and outputs[2:] == [None, 3]
    assert signature.user_outputs[1:] == ["arg3_1", None, None]
    joint, of_joint = aot_export_module(mod, (X,), trace_joint=True, output_loss_index=0, kwargs={"scale": {"by": X}})
    torch.testing.assert_close(run(joint, mod, [X, X])[-1], torch.autograd.grad(want, mod.weight)[0])
    assert of_joint.backward_signature is not None
    assert list(of_joint.backward_signature.gradients_to_parameters.values()) == ["weight"]


def test_export_module_writes_parameters_without_gradients() -> None:
    def step(m: Any, x: Tensor) -> tuple[Tensor]:
        m.weight.sub_(0.1 * x)
        return (m.weight * 2,)

    mod = Calls(step)
    graph, signature = aot_export_module(mod, (X,), trace_joint=False)
    written, result = run(graph, mod, [X])
    assert list(signature.parameters_to_mutate.values()) == ["weight"] and not signature.buffers_to_mutate
    torch.testing.assert_close(written, mod.weight.detach() - 0.1 * X)
    torch.testing.assert_close(result, written * 2)


def test_export_module_counts_an_assigned_buffer_as_written() -> None:
    """Two buffers swapped, and a view of the old value returned, which keeps that value."""

    def swap(m: Any, x: Tensor) -> tuple[Tensor, Tensor]:
        before = m.seen.view(-1)
        m.register_buffer("other", m.other)
        m.seen, m.other = m.other * 3, m.seen
        return before, x + m.seen

    mod = Calls(swap)
    mod.register_buffer("other", torch.full((3,), 5.0))
    graph, signature = aot_export_module(mod, (X,), trace_joint=False)
    seen, other, before, total = run(graph, mod, [X])
    assert list(signature.buffers_to_mutate.values()) == ["seen", "other"]
    torch.testing.assert_close([seen, other, before], [torch.full((3,), 15.0), torch.ones(3), torch.ones(3)])
    torch.testing.assert_close(total, X + 15)
    assert torch.equal(mod.seen, torch.ones(3)) and torch.equal(mod.other, torch.full((3,), 5.0))


@pytest.mark.parametrize("trace_joint", [False, True])
@pytest.mark.parametrize("given", ["fake", "real"])
def test_export_module_keeps_sizes_symbolic(given: str, trace_joint: bool) -> None:
    """By fake inputs of a mode with a ShapeEnv, or by dynamic_shapes=True."""
    args: tuple[Tensor, ...] = (torch.randn(3, 4), torch.randn(3, 2))
    if given == "fake":
        mode = FakeTensorMode(shape_env=ShapeEnv())
        args = tuple(mode.from_tensor(arg) for arg in args)
    mod = Normalised()
    graph, _ = aot_export_module(
        mod,
        args,
        trace_joint=trace_joint,
        output_loss_index=0 if trace_joint else None,
        dynamic_shapes=True if given == "real" else None,
    )
    x, target = torch.randn(7, 4), torch.randn(7, 2)
    outputs = run(graph, mod, [x, target])
    eager = copy.deepcopy(mod)
    loss, y = eager(x, target)
    torch.testing.assert_close(outputs[3:5], [loss.detach(), y])
    if trace_joint:
        loss.backward()
        torch.testing.assert_close(outputs[5:], [p.grad for p in eager.parameters()])


def test_export_module_decomposes_as_told() -> None:
    mod = Calls(lambda m, x: (torch.addcmul(x, m.weight, x),))
    table = torch._decomp.get_decompositions([torch.ops.aten.addcmul])
    for decompositions, whole in (({}, True), (table, False)):
        graph, _ = aot_export_module(mod, (X,), trace_joint=False, decompositions=decompositions)
        assert any(node.target is torch.ops.aten.addcmul.default for node in graph.graph.nodes) is whole
        torch.testing.assert_close(run(graph, mod, [X])[0], torch.addcmul(X, mod.weight, X).detach())


def test_export_module_raises_the_modules_own_error() -> None:
    with pytest.raises(RuntimeError, match="broadcast") as caught:
        aot_export_module(Calls(lambda m, x: (x + torch.ones(7),)), (X,), trace_joint=False)
    assert not isinstance(caught.value, Unsupported)


class Tied(nn.Module):
    """One parameter by two names: of two modules, or of one module that has two names."""

    def __init__(self, is_module: bool) -> None:
        super().__init__()
        self.a = nn.Linear(3, 3)
        self.b = self.a if is_module else nn.Linear(3, 3)
        self.b.weight = self.a.weight

    def forward(self, x: Tensor) -> tuple[Tensor]:
        return (self.b(self.a(x).sin()).square().sum(),)


@pytest.mark.parametrize("is_module", [False, True])
@pytest.mark.parametrize("trace_joint", [False, True])
def test_export_module_takes_a_tied_parameter_by_each_name(trace_joint: bool, is_module: bool) -> None:
    module, x = Tied(is_module), torch.randn(2, 3)
    index = 0 if trace_joint else None
    graph, signature = aot_export_module(module, (x,), trace_joint=trace_joint, output_loss_index=index)
    state = dict(module.named_parameters(remove_duplicate=False))
    assert list(signature.inputs_to_parameters.values()) == list(state) == ["a.weight", "a.bias", "b.weight", "b.bias"]
    loss, *gradients = graph(*(each.detach() for each in state.values()), x)
    (want,) = module(x)
    torch.testing.assert_close(loss, want)
    if not trace_joint:
        return
    want.backward()
    assert signature.backward_signature is not None
    names = signature.backward_signature.gradients_to_parameters.values()
    for tensor in set(state.values()):
        parts = [gradient for name, gradient in zip(names, gradients, strict=True) if state[name] is tensor]
        torch.testing.assert_close(sum(parts), tensor.grad)


@pytest.mark.parametrize("name", ["writes", "writes_input", "dropout"])
def test_export_module_is_printed_as_torchs(name: str) -> None:
    """What each input and output is stands beside it."""
    make, inputs = MODULES[name]
    texts = []
    for export in (aot_export_module, export_of_torch):
        graph, _ = export(make(), inputs, trace_joint=False)
        texts.append([line for line in graph.print_readable(False, expanded_def=True).splitlines() if "idx=" in line])
        assert type(graph).__name__ == "<lambda>"
    assert texts[0] == texts[1] != []
