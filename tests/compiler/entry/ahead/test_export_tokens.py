"""Tokens of exported graphs, and signatures that whoever has them may change."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import Tensor, fx, nn
from torch._functorch.aot_autograd import aot_export_module as export_of_torch
from torch._higher_order_ops.effects import with_effects
from torch.export.graph_signature import _convert_to_export_graph_signature

from assay.compiler.entry.export import GraphSignature, aot_export_module
from assay.compiler.errors import ExportError
from tests.compiler.entry.ahead.effectful_operators import effectful_operators

seen: list[str] = []


@pytest.fixture(scope="module", autouse=True)
def operators() -> Iterator[None]:
    library = effectful_operators("assay_tokens", seen, torch.clone)
    yield
    library._destroy()


class Noted(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(3))
        self.register_buffer("count", torch.zeros(3))

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        own = torch.ops.assay_tokens
        self.count.add_(1)
        own.note("first")
        y = own.heard(x * self.weight.detach(), "second")
        one, other = own.twice(y)
        own.note("last")
        return ((one * self.weight).sum(), other.detach())


def returned(graph: fx.GraphModule) -> list[str]:
    return [node.name for node in next(iter(reversed(graph.graph.nodes))).args[0]]


@pytest.mark.parametrize("trace_joint", [False, True])
def test_export_threads_effects_through_a_token(trace_joint: bool) -> None:
    module, index = Noted(), 0 if trace_joint else None
    graph, signature = aot_export_module(module, (torch.ones(3),), trace_joint=trace_joint, output_loss_index=index)
    names = [node.name for node in graph.graph.find_nodes(op="placeholder")]
    assert signature.input_tokens == names[:1] and signature.output_tokens == returned(graph)[:1]
    assert list(signature.buffers_to_mutate) == returned(graph)[1:2] and signature.user_inputs == names[-1:]
    calls = graph.graph.find_nodes(op="call_function", target=with_effects)
    assert [str(call.args[1]).split(".")[1] for call in calls] == ["note", "heard", "twice", "note"]
    for call, following in pairwise(calls):
        assert following.args[0].args == (call, 0), "each takes the token of the one before"
    seen.clear()
    x = torch.tensor([1.0, 2.0, 3.0])
    token, count, loss, other, *gradients = graph(torch.empty(0), module.weight.detach(), module.count.clone(), x)
    assert seen == ["first", "second", "twice", "last"] and token.shape == (0,)
    torch.testing.assert_close((count, loss, other), (torch.ones(3), (x + 1).sum(), x + 2))
    torch.testing.assert_close(gradients, [x + 1] if trace_joint else [])


def test_export_of_tokens_is_torchs() -> None:
    module, args = Noted(), (torch.ones(3),)
    graph, signature = aot_export_module(module, args, trace_joint=False)
    wanted, told = export_of_torch(module, args, trace_joint=False)
    assert isinstance(wanted, fx.GraphModule)
    targets = [[n.target for n in g.graph.nodes if n.op == "call_function"] for g in (graph, wanted)]
    kept = [[t for t in each if t is not torch.ops.aten.detach.default] for each in targets]
    assert sorted(map(str, kept[0])) == sorted(map(str, kept[1]))
    for name in ("input_tokens", "user_inputs", "inputs_to_parameters", "inputs_to_buffers"):
        assert getattr(signature, name) == getattr(told, name), name
    assert len(signature.input_tokens) == len(signature.output_tokens) == 1
    given = (torch.empty(0), torch.full((3,), 2.0), torch.zeros(3), torch.ones(3))
    torch.testing.assert_close(graph(*given), wanted(*given))


def test_export_takes_no_token_where_nothing_has_an_effect() -> None:
    graph, signature = aot_export_module(nn.Linear(3, 2), (torch.ones(3),), trace_joint=False)
    assert signature.input_tokens == [] == signature.output_tokens
    assert graph.graph.find_nodes(op="call_function", target=with_effects) == []


def test_tokens_are_those_of_the_signature_of_an_exported_program() -> None:
    """What torch.export makes of a signature: each token as an input and an output of that kind, in the first place."""
    graph, signature = aot_export_module(Noted(), (torch.ones(3),), trace_joint=False)
    made = _convert_to_export_graph_signature(signature, graph, set())  # type: ignore[arg-type]
    assert made.input_tokens == tuple(signature.input_tokens) == ("arg0_1",)
    assert made.output_tokens == tuple(signature.output_tokens)
    kinds = [each.kind.name for each in (*made.input_specs, *made.output_specs)]
    outputs = ["TOKEN", "BUFFER_MUTATION", "USER_OUTPUT", "USER_OUTPUT"]
    assert kinds == ["TOKEN", "PARAMETER", "BUFFER", "USER_INPUT", *outputs]


def test_export_refuses_an_effect_in_a_branch() -> None:
    class Branches(nn.Module):
        def forward(self, x: Tensor) -> tuple[Tensor]:
            heard = torch.ops.assay_tokens.heard
            return (torch.cond(x.sum() > 0, lambda a: heard(a, "taken"), lambda a: a.sin(), (x,)),)

    with pytest.raises(ExportError, match="a function given to cond has an effect"):
        aot_export_module(Branches(), (torch.ones(3),), trace_joint=False)


def test_a_signature_may_be_changed() -> None:
    """Whoever renames a node of the graph renames it in the signature."""
    _, signature = aot_export_module(nn.Linear(3, 2), (torch.ones(3),), trace_joint=False)
    signature.user_inputs = ["x"]
    signature.inputs_to_parameters["p"] = signature.inputs_to_parameters.pop("arg0_1")
    signature.backward_signature = None
    assert isinstance(signature, GraphSignature) and signature.user_inputs == ["x"]
    with_loss: Any = aot_export_module(Noted(), (torch.ones(3),), trace_joint=True, output_loss_index=0)[1]
    with_loss.backward_signature.loss_output = "renamed"
    assert with_loss.backward_signature.loss_output == "renamed"
