"""What backward is given where a loss reads the results of a call, and where gradients are cast."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, fx
from torch.nn import functional

from assay.compiler.autograd.partition import COPY, demands, viewed
from assay.compiler.autograd.rematerialization.rematerialize import cheapest_split
from assay.compiler.autograd.result_copies import add_copies
from assay.compiler.ir.graph.roles import Program, Saved
from assay.compiler.ir.loops.kernel import Allocate
from assay.compiler.passes.cast_before_views import cast_before_views
from assay.compiler.passes.split_log_softmax import split_log_softmax
from tests.compiler.autograd.test_partition import joint_of
from tests.lowering import assert_same, executable, planned, traced


def language(x: Tensor, w: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Logits, and the loss that reads them in float32."""
    logits = x @ w
    return logits, functional.cross_entropy(logits.view(-1, logits.shape[-1]).float(), y)


def inputs(dtype: torch.dtype) -> list[Tensor]:
    x, w = torch.randn(2, 3, 4, dtype=dtype, requires_grad=True), torch.randn(4, 64, dtype=dtype, requires_grad=True)
    return [x, w, torch.randint(64, (6,))]


def saved_sizes(joint: Program) -> list[tuple[torch.dtype, int]]:
    """The dtypes and the elements of what forward saves, but for what it was given."""
    forward = cheapest_split(joint).forward
    pairs = zip(forward.signature.outputs, forward.returned, strict=True)
    values = [
        n.meta["val"]
        for role, n in pairs
        if isinstance(role, Saved) and isinstance(n, fx.Node) and n.op != "placeholder"
    ]
    return [(value.dtype, value.numel()) for value in values if isinstance(value, Tensor)]


def test_a_copy_of_half_the_size_is_kept_for_backward() -> None:
    joint = joint_of(language, inputs(torch.bfloat16))
    assert split_log_softmax(joint) == 1
    kept = saved_sizes(joint)
    assert (torch.bfloat16, 6 * 64) in kept and (torch.float32, 6 * 64) not in kept
    copies = [node for node in joint.module.graph.nodes if COPY in node.meta]
    outputs = {viewed(node) for node in joint.returned if isinstance(node, fx.Node)}
    assert len(copies) == 1 and copies[0] not in outputs


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_no_copy_is_made_that_costs_more_than_what_eager_keeps(dtype: torch.dtype) -> None:
    joint = joint_of(language, inputs(dtype))
    assert split_log_softmax(joint) == 1
    before = len(joint.module.graph.nodes)
    kept = saved_sizes(joint)
    assert (torch.float32, 6 * 64) in kept
    assert not any(COPY in node.meta for node in joint.module.graph.nodes)
    assert len(joint.module.graph.nodes) == before


def test_results_that_eager_keeps_itself_are_not_copied() -> None:
    joint = joint_of(lambda x, w: ((h := x @ w), functional.gelu(h).sum()), inputs(torch.bfloat16)[:2])
    _, wanted = demands(joint)
    assert any(node.target is torch.ops.aten.mm.default for node in map(viewed, wanted))
    assert add_copies(joint) == 0


def softened(x: Tensor) -> tuple[Tensor]:
    return ((x.softmax(1) * x).view(2, 3, 5).view(3, 10).to(torch.bfloat16),)


def test_a_cast_joins_the_kernel_of_what_it_casts() -> None:
    x = torch.randn(6, 5)
    program = traced(softened, x)
    assert cast_before_views(program) == 1
    schedule = planned(program)
    assert [step.dtype for step in schedule.steps if isinstance(step, Allocate)] == [torch.bfloat16]
    (found,) = executable(schedule)([x])
    assert_same(found, softened(x)[0], "cast")


@pytest.mark.parametrize(
    "function",
    [
        lambda x: ((y := x.sin()).view(5, 6).half(), y),
        lambda x: (x.sin().t().reshape(6, 5).t().half(),),
        lambda x: (x.view(5, 6).half(),),
        lambda x: ((y := x.sin().view(5, 6)).half(), y),
        lambda x: (x.sin().t().half(),),
    ],
    ids=["read twice", "not in rows", "of an input", "view read twice", "no view"],
)
def test_casts_stay_where_their_value_is_read_elsewhere_or_lies_otherwise(
    function: Callable[[Tensor], tuple[Tensor, ...]],
) -> None:
    x = torch.randn(6, 5)
    program = traced(function, x)
    assert cast_before_views(program) == 0
    for found, expected in zip(executable(planned(program))([x]), function(x), strict=True):
        assert_same(found, expected, "left as it is")
