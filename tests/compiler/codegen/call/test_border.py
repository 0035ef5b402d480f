"""The border of a graph with wrappers: what the inside is given and returns, and the text around it."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch._dynamo.source import ConstantSource
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.testing._internal.two_tensor import TwoTensor

from assay.compiler.capture.functionalize import capture
from assay.compiler.capture.inputs import Call, fake_leaf
from assay.compiler.codegen.call.border import Border, bordered
from assay.compiler.ir.graph.roles import GraphCall, Inner, Program, UserInput
from assay.compiler.ir.graph.wrapper_nodes import has_wrappers, makes_wrapper
from assay.compiler.ir.tensors.wrappers import is_wrapper


def recorded(function: Any, *values: Tensor) -> Program:
    mode = FakeTensorMode(shape_env=ShapeEnv())
    sources = (ConstantSource(f"input_{index}") for index, _ in enumerate(values))
    pairs = enumerate(zip(values, sources, strict=True))
    leaves = tuple(fake_leaf(UserInput(index), value, mode, source) for index, (value, source) in pairs)
    return capture(Call(lambda given: function(*given), leaves, mode), {}).finish()


def build(program: Program) -> GraphCall:
    """Runs a graph as it is; it has to be one of plain tensors."""
    assert not has_wrappers(program)
    assert not any(map(makes_wrapper, program.module.graph.nodes))

    def run(args: list[object]) -> Any:
        assert not any(map(is_wrapper, args))
        return program.module(*args)

    return run


def pair() -> Tensor:
    return TwoTensor(torch.randn(3), torch.randn(3))


def test_the_inside_knows_plain_tensors_alone() -> None:
    program = recorded(lambda x, y: [x.sin() * y, y + 1], pair(), torch.randn(3))
    border = Border.of(program)
    assert [type(role) for role in border.inside.signature.inputs] == [Inner, Inner, UserInput]
    assert [role.path for role in border.inside.signature.inputs if isinstance(role, Inner)] == [("a",), ("b",)]
    assert len(border.inside.signature.outputs) == 3
    x, y = pair(), torch.randn(3)
    given: list[object] = [x, y]
    made, plain = bordered(build)(program)(given)
    assert given == []
    expected = x.sin() * y
    assert torch.equal(made.a, expected.a)  # type: ignore[attr-defined]
    assert torch.equal(plain, y + 1)


def test_nested_wrappers() -> None:
    x = TwoTensor(pair(), pair())
    (made,) = bordered(build)(recorded(lambda x: [x * 2], x))([x])
    assert torch.equal(made.b.a, x.b.a * 2)


def test_what_is_handed_on_is_the_very_object() -> None:
    rows = torch.nested.nested_tensor([torch.ones(2, 4), torch.ones(3, 4)], layout=torch.jagged)
    (made,) = bordered(build)(recorded(lambda x: [x * 2], rows))([rows])
    assert made.offsets() is rows.offsets()
    assert torch.equal(made.values(), rows.values() * 2)


def test_a_graph_of_plain_tensors_has_no_border() -> None:
    built: list[Program] = []
    program = recorded(lambda x: [x * 2], torch.randn(3))
    bordered(lambda given: built.append(given) or build(given))(program)
    assert built == [program]
