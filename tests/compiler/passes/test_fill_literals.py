"""Numbers that a program writes down as tensors of a GPU, on a machine that has none."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, fx
from torch._subclasses.fake_tensor import FakeTensorMode

from assay.compiler.ir.graph.roles import Program, Signature
from assay.compiler.passes.fill_literals import fill_literals

aten = torch.ops.aten


def program_of(
    literal: Tensor, dtype: torch.dtype | None = None, device: str = "cuda", is_read: bool = False
) -> Program:
    """A literal in the host's memory, copied to a device, as `torch.tensor(..., device="cuda")` is recorded."""
    graph = fx.Graph()
    module = torch.nn.Module()
    module.literal = literal
    source = graph.get_attr("literal")
    lifted = graph.call_function(aten.lift_fresh_copy.default, (source,))
    copied = graph.call_function(aten._to_copy.default, (lifted,), {"dtype": dtype, "device": torch.device(device)})
    result = graph.call_function(aten.mul.Tensor, (copied, 2))
    results = [result, graph.call_function(aten.neg.default, (source,))] if is_read else [result]
    graph.output(results)
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        source.meta["val"] = lifted.meta["val"] = mode.from_tensor(literal)
        like = torch.empty_strided(literal.shape, literal.stride(), dtype=dtype or literal.dtype, device=device)
        copied.meta["val"] = like
        result.meta["val"] = like * 2
    return Program(fx.GraphModule(module, graph), Signature((), ()))


def assigned(other: bool = False) -> Program:
    """A number assigned to a part of a tensor of a GPU; also read on the host if there is an `other` reader."""
    graph = fx.Graph()
    module = torch.nn.Module()
    module.literal = torch.tensor(3)
    x = graph.placeholder("x")
    lifted = graph.call_function(aten.lift_fresh_copy.default, (graph.get_attr("literal"),))
    filled = graph.call_function(aten.fill.Tensor, (x, lifted))
    results = [filled, graph.call_function(aten.neg.default, (lifted,))] if other else [filled]
    graph.output(results)
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        lifted.meta["val"] = mode.from_tensor(module.literal)
        for node in results:
            node.meta["val"] = lifted.meta["val"]
        x.meta["val"] = filled.meta["val"] = torch.empty(4, dtype=torch.int64, device="cuda")
    return Program(fx.GraphModule(module, graph), Signature((), ()))


def targets(program: Program) -> list[object]:
    return [node.target for node in program.module.graph.nodes if node.op == "call_function"]


@pytest.mark.parametrize("literal", [
    torch.tensor(0.0), torch.tensor([-0.0]), torch.tensor(1e-300, dtype=torch.float64), torch.tensor([[7]]),
    torch.tensor(True), torch.tensor(0.1, dtype=torch.bfloat16), torch.tensor(-(2**63) + 1),
], ids=str)  # fmt: skip
def test_fill_literals_fills_with_the_very_number(literal: Tensor) -> None:
    program = program_of(literal)
    assert fill_literals(program) == 1
    program.module.graph.lint()
    fill, _, _ = (node for node in program.module.graph.nodes if node.op == "call_function")
    assert fill.target is aten.full.default and fill.kwargs["device"].type == fill.meta["val"].device.type == "cuda"
    made = aten.full.default(*fill.args, dtype=fill.kwargs["dtype"])
    assert torch.equal(made, literal) and made.dtype is literal.dtype and made.stride() == literal.stride()
    if literal.is_floating_point():
        assert torch.equal(made.signbit(), literal.signbit())
    assert not program.module.graph.find_nodes(op="get_attr")


@pytest.mark.parametrize("literal", [
    torch.tensor([1.0, 2.0]), torch.tensor(math.nan), torch.tensor(math.inf), torch.tensor(1j), torch.ones(0),
    torch.tensor(2**63, dtype=torch.uint64),
], ids=str)  # fmt: skip
def test_fill_literals_leaves_what_no_scalar_says(literal: Tensor) -> None:
    program = program_of(literal)
    assert fill_literals(program) == 0
    assert targets(program)[:2] == [aten.lift_fresh_copy.default, aten._to_copy.default]


def test_fill_literals_leaves_what_is_converted_or_stays_or_is_read_elsewhere() -> None:
    assert fill_literals(program_of(torch.tensor(0.1), dtype=torch.bfloat16)) == 0
    assert fill_literals(program_of(torch.tensor(0.1), device="cpu")) == 0
    assert fill_literals(program_of(torch.tensor(0.1), is_read=True)) == 0


def test_fill_literals_fills_what_is_assigned_to_a_part() -> None:
    program = assigned()
    assert fill_literals(program) == 1
    assert targets(program) == [aten.full.default, aten.fill.Tensor]
    assert fill_literals(assigned(other=True)) == 0, "it is read on the host, too"
    asked = assigned()
    (lifted,) = asked.module.graph.find_nodes(op="call_function", target=aten.lift_fresh_copy.default)
    with asked.module.graph.inserting_after(lifted):
        asked.module.graph.call_function(aten._local_scalar_dense.default, (lifted,)).meta["val"] = 3
    assert fill_literals(asked) == 0, "a GPU would be waited for"
