"""Regions stay calls of one graph in what the ahead-of-time doors hand out: forward, backward, joint and exported."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any

import pytest
import torch
from torch import fx
from torch.compiler import nested_compile_region
from torch.utils.checkpoint import checkpoint

from assay.compiler import journal
from assay.compiler.entry.aot import (
    aot_compile_joint_with_descriptors,
    aot_export_joint_with_descriptors,
    aot_function,
    aot_module_simplified,
    default_partition,
    min_cut_rematerialization_partition,
    nop,
)
from assay.compiler.entry.dynamo import compile_fx_inner
from assay.compiler.entry.export import aot_export_module

INVOKE = torch.ops.higher_order.invoke_subgraph
Graphs = list[fx.GraphModule]


@nested_compile_region
def block(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return torch.mul(x, y).sin() + 5


@nested_compile_region
def dropped(x: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.dropout(x.sin(), 0.5) + torch.rand_like(x)


@nested_compile_region
def inner(x: torch.Tensor) -> torch.Tensor:
    return x.sin() * 2


@nested_compile_region
def outer(x: torch.Tensor) -> torch.Tensor:
    return inner(x) + inner(x.cos())


@nested_compile_region
def counted(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, int]:
    return x.sin() * x.shape[0], x.argmax(-1), x.shape[0]


def twice(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return block(x, y) + block(y.cos(), y)


def draws(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return dropped(x) + torch.rand_like(x) + dropped(y)


def nests(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return outer(x) * outer(y)


def counts(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    a, place, rows = counted(x)
    return a * rows + counted(y)[0] + place[:, None]


def cut_off(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return block(x, y) + block(x.detach(), y.detach()) + block(y, x)


def computed_again(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    def both(a: torch.Tensor) -> torch.Tensor:
        return block(a, a.cos()) + block(a + 1, a)

    found: torch.Tensor = checkpoint(both, x, use_reentrant=False)
    return found + y


PROGRAMS = [twice, draws, nests, counts, cut_off, computed_again]


def calls_of(graph: fx.GraphModule) -> list[fx.Node]:
    return list(graph.graph.find_nodes(op="call_function", target=INVOKE))


def keeping(into: Graphs) -> Callable[[fx.GraphModule, Sequence[object]], Callable[..., Any]]:
    def compiler(graph: fx.GraphModule, inputs: Sequence[object]) -> Callable[..., Any]:
        into.append(graph)
        return nop(graph, inputs)

    return compiler


def inputs(requires_grad: bool) -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(3)
    return torch.randn(6, 4, requires_grad=requires_grad), torch.randn(6, 4, requires_grad=requires_grad)


def results(function: Callable[..., torch.Tensor], requires_grad: bool) -> list[torch.Tensor]:
    given = inputs(requires_grad)
    result = function(*given)
    return [result, *(torch.autograd.grad((result * result).sum(), given) if requires_grad else ())]


@pytest.mark.parametrize(
    ("inner_compiler", "partition"), [(nop, default_partition), (compile_fx_inner, min_cut_rematerialization_partition)]
)
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("program", PROGRAMS)
def test_regions_give_eager_results_and_gradients(
    program: Callable[..., torch.Tensor], dynamic: bool, inner_compiler: Any, partition: Any
) -> None:
    def backend(graph: fx.GraphModule, examples: Sequence[Any]) -> Callable[..., Any]:
        return aot_module_simplified(graph, examples, inner_compiler, partition_fn=partition)

    torch._dynamo.reset()
    compiled = torch.compile(program, backend=backend, fullgraph=True, dynamic=dynamic)
    journal.reset()
    for requires_grad in (True, False):
        found = results(compiled, requires_grad)
        wanted = results(program, requires_grad)
        torch.testing.assert_close(found, wanted)
    assert journal.totals()["eager_graphs"] == 0


@pytest.mark.parametrize("program", PROGRAMS)
def test_regions_of_forward_and_backward_are_calls_of_one_graph_each(program: Callable[..., torch.Tensor]) -> None:
    forward, backward = Graphs(), Graphs()

    def backend(graph: fx.GraphModule, examples: Sequence[Any]) -> Callable[..., Any]:
        return aot_module_simplified(graph, examples, keeping(forward), keeping(backward))

    torch._dynamo.reset()
    results(torch.compile(program, backend=backend, fullgraph=True), True)
    for (graph,), name in ((forward, "partitioned_fw"), (backward, "partitioned_bw")):
        calls = [str(node.args[1]) for node in calls_of(graph)]
        assert len(calls) >= 2 and len(set(calls)) < len(calls)
        assert all(call.startswith(name) for call in calls)
        assert {str(node.args[0].target) for node in calls_of(graph)} == set(calls)  # type: ignore[union-attr]


def test_a_region_saves_in_forward_what_its_backward_reads() -> None:
    graphs = Graphs()

    def pair(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        (first,), (second,) = INVOKE(multiplied, "pair", x, y), INVOKE(multiplied, "pair", y, x)
        return first + second

    def multiplied(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor]:
        return (torch.mul(x, y),)

    given = inputs(True)
    compiled = aot_function(pair, keeping(graphs))
    found = torch.autograd.grad(compiled(*given).sum(), given)
    torch.testing.assert_close(list(found), [2 * given[1], 2 * given[0]])
    forward, backward = graphs
    assert [len(node.meta["val"]) for node in calls_of(forward)] == [3, 3]
    assert [len(node.args) for node in calls_of(backward)] == [5, 5]
    (body,) = {id(getattr(backward, str(node.args[0].target))) for node in calls_of(backward)}  # type: ignore[union-attr]
    assert body
    targets = [node.target for node in backward.partitioned_bw_pair_0.graph.nodes if node.op == "call_function"]  # type: ignore[union-attr]
    assert targets == [torch.ops.aten.mul.Tensor] * 2


def test_a_region_is_one_compiled_body_however_often_a_graph_calls_it() -> None:
    def backend(graph: fx.GraphModule, examples: Sequence[Any]) -> Callable[..., Any]:
        return aot_module_simplified(graph, examples, compile_fx_inner)

    def four(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        for _ in range(4):
            x = block(x, y)
        return x

    torch._dynamo.reset()
    journal.reset()
    results(torch.compile(four, backend=backend, fullgraph=True), True)
    assert journal.totals()["pieces"] == 2


def test_gradients_of_gradients_go_through_regions() -> None:
    def backend(graph: fx.GraphModule, examples: Sequence[Any]) -> Callable[..., Any]:
        return aot_module_simplified(graph, examples, nop)

    def second(function: Callable[..., torch.Tensor]) -> list[torch.Tensor]:
        x, y = inputs(True)
        (first,) = torch.autograd.grad((function(x, y) ** 2).sum(), [x], create_graph=True)
        return list(torch.autograd.grad(first.sin().sum(), [x, y]))

    torch._dynamo.reset()
    torch.testing.assert_close(second(torch.compile(twice, backend=backend, fullgraph=True)), second(twice))


@pytest.mark.parametrize("program", [twice, draws])
def test_exported_joint_graphs_keep_regions(program: Callable[..., torch.Tensor]) -> None:
    held: list[tuple[fx.GraphModule, Any]] = []

    def backend(graph: fx.GraphModule, examples: Any) -> Callable[..., Any]:
        held.append((graph, [each.detach().requires_grad_() for each in examples]))
        return graph.forward

    torch._dynamo.reset()
    torch.compile(program, backend=backend, fullgraph=True)(*inputs(True))
    ((graph, examples),) = held
    with ExitStack() as stack:
        joint = aot_export_joint_with_descriptors(stack, graph, tuple(examples))
    calls = [str(node.args[1]) for node in calls_of(joint.graph_module)]
    assert len(calls) == 4
    children = [child for child in joint.graph_module.children() if isinstance(child, fx.GraphModule)]
    assert sum("rand_like" in child.code for child in children) == (program is draws)  # backward draws nothing again
    run = aot_compile_joint_with_descriptors(joint)
    torch.testing.assert_close(results(lambda *args: run(*args)[0], True), results(program, True))
    exported, _ = aot_export_module(graph, list(inputs(False)), trace_joint=False)
    assert len(calls_of(exported)) == 2


def test_a_region_that_writes_is_one_call_that_functionalizes() -> None:
    @nested_compile_region
    def adding(x: torch.Tensor, total: torch.Tensor) -> torch.Tensor:
        total.add_(1)
        return x.sin() + total

    def backend(graph: fx.GraphModule, examples: Sequence[Any]) -> Callable[..., Any]:
        return aot_module_simplified(graph, examples, compile_fx_inner)

    def writes(x: torch.Tensor, total: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            return adding(x, total) + adding(x + 1, total)

    torch._dynamo.reset()
    found, wanted = inputs(False), inputs(False)
    torch.testing.assert_close(torch.compile(writes, backend=backend, fullgraph=True)(*found), writes(*wanted))
    torch.testing.assert_close(found, wanted)
