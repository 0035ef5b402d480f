"""The default partition against the joint graph that it cuts, and against every cut of small graphs."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import fx, nn
from torch._subclasses.fake_tensor import FakeTensorMode

from assay.compiler.autograd.joint import differentiate
from assay.compiler.autograd.partition import default_split
from assay.compiler.capture.decompositions.table import DECOMPOSITIONS
from assay.compiler.capture.functionalize import capture
from assay.compiler.capture.inputs import Call, fake_leaf
from assay.compiler.entry.aot import (
    aot_function,
    default_partition,
    make_boxed_func,
    min_cut_rematerialization_partition,
)
from assay.compiler.ir.graph.roles import Gradient, Program, Saved, UserInput
from assay.compiler.ir.graph.trace import is_random
from assay.reference.evaluate import evaluate
from assay.reference.partition import cheapest, cuts


def joint_of(function: object, inputs: list[torch.Tensor]) -> Program:
    mode = FakeTensorMode()
    leaves = tuple(fake_leaf(UserInput(index), value, mode) for index, value in enumerate(inputs))

    def run(args: list[object]) -> list[object]:
        results = function(*args)  # type: ignore[operator]
        return list(results) if isinstance(results, tuple) else [results]

    call = Call(run, leaves, mode, frozenset())
    return differentiate(capture(call, DECOMPOSITIONS))


def functions() -> dict[str, tuple[object, list[torch.Tensor]]]:
    x, w = torch.randn(4, 6, requires_grad=True), torch.randn(6, 6, requires_grad=True)
    return {
        "matmul and relu": (lambda a, b: torch.relu(a @ b), [x, w]),
        "exp saved as result": (lambda a: a.exp() * 2, [x]),
        "views": (lambda a: (a.t().reshape(2, 12) * 3).sin(), [x]),
        "softmax": (lambda a: torch.softmax(a, -1), [x]),
        "several outputs of one call": (lambda a: torch.max(a, 1).values, [x]),
    }


@pytest.mark.parametrize("name", functions())
def test_partition_forward_then_backward_is_the_joint_graph(name: str) -> None:
    function, inputs = functions()[name]
    joint = joint_of(function, inputs)
    plain = [value.detach() for value in inputs]
    shapes = [node.meta["val"].shape for node in joint.placeholders[len(inputs) :]]
    tangents = [torch.randn(shape) for shape in shapes]
    want = evaluate(joint.module, [*plain, *tangents])
    split = default_split(joint)
    forward = evaluate(split.forward.module, plain)
    saved = [v for r, v in zip(split.forward.signature.outputs, forward, strict=True) if isinstance(r, Saved)]
    backward = evaluate(split.backward.module, [*saved, *tangents])
    kept = len(forward) - len(saved)
    for got, expected in zip([*forward[:kept], *backward], want, strict=True):
        assert torch.equal(got, expected)


@pytest.mark.parametrize("name", ["matmul and relu", "exp saved as result", "softmax"])
def test_partition_saves_a_cut_that_the_mirror_knows_and_no_fewer_bytes_than_the_cheapest(name: str) -> None:
    function, inputs = functions()[name]
    joint = joint_of(function, inputs)
    known = {cut.saved for cut in cuts(joint)}
    best = cheapest(joint).saved_bytes
    split = default_split(joint)
    pairs = zip(split.forward.signature.outputs, split.forward.returned, strict=True)
    saved = {role.of: node for role, node in pairs if isinstance(role, Saved)}
    assert frozenset(saved) in known
    assert sum(node.meta["val"].numel() * 4 for node in saved.values()) >= best


def test_partition_never_draws_random_numbers_again() -> None:
    joint = joint_of(lambda a: nn.functional.dropout(a, 0.5), [torch.randn(8, requires_grad=True)])
    split = default_split(joint)
    assert not any(is_random(node) for node in split.backward.module.graph.nodes)
    assert any(is_random(node) for node in split.forward.module.graph.nodes)
    assert all(isinstance(role, Gradient) for role in split.backward.signature.outputs)


@pytest.mark.parametrize("partition", [default_partition, min_cut_rematerialization_partition])
def test_partition_saves_sizes_and_makes_arithmetic_on_them_again(partition: Any) -> None:
    """Of three sizes any number follow: backward is given the three."""
    graphs: list[fx.GraphModule] = []

    def compiler(graph: fx.GraphModule, _: object) -> Any:
        graphs.append(graph)
        return make_boxed_func(graph.forward)

    def stacked(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
        rows = b.shape[0] + c.shape[0]
        return torch.cat([a.expand(rows, a.shape[0]), b, c, b])

    compiled = aot_function(stacked, compiler, partition_fn=partition, dynamic=True)
    for rows, others, columns in ((3, 2, 10), (4, 5, 6)):
        given = [torch.randn(columns), torch.randn(rows, columns), torch.randn(others, columns)]
        mine, theirs = ([each.clone().requires_grad_() for each in given] for _ in range(2))
        (compiled(*mine) ** 2).sum().backward()
        (stacked(*theirs) ** 2).sum().backward()
        torch.testing.assert_close([each.grad for each in mine], [each.grad for each in theirs])
    assert len(graphs) == 2, "compiled once for all sizes"
    saved = graphs[1].graph.find_nodes(op="placeholder")[:-1]
    assert len(saved) == 3 and all(isinstance(node.meta["val"], torch.SymInt) for node in saved)
