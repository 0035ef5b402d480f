"""Operators whose result's size its data says, where torch's fake tensors give a number for it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor, fx
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from assay.compiler.entry.dynamo import assay
from assay.compiler.ir.graph import trace
from assay.compiler.journal import totals

NAMESPACE = "assay_made_up_sizes"


@pytest.fixture(scope="module")
def positives() -> Iterator[torch._ops.OpOverload]:
    """The positive elements of a vector. Its fake is of one element, as where torch runs an operator on zeros."""
    with torch.library._scoped_library(NAMESPACE, "DEF") as library:
        library.define("positives(Tensor x) -> Tensor", tags=(torch.Tag.dynamic_output_shape,))
        library.impl("positives", lambda x: x[x > 0], "CPU")
        library.impl("positives", lambda x: x.new_empty(1), "Meta")
        yield torch.ops.assay_made_up_sizes.positives.default


def test_a_size_that_is_made_up_is_not_compiled(positives: torch._ops.OpOverload) -> None:
    x = torch.tensor([1.0, -2.0, 3.0, 4.0])
    graph = fx.symbolic_trace(lambda x: (positives(x * 2) + 1,))
    before = totals()["eager_graphs"]
    (found,) = assay(graph, [x])(x)
    assert torch.equal(found, torch.tensor([3.0, 7.0, 9.0])) and totals()["eager_graphs"] == before + 1


@pytest.mark.parametrize("size", [3, torch.SymInt])
def test_a_size_that_torch_does_not_say_is_the_datas(size: object) -> None:
    """`_unique` in torch 2.11 has no tag and no rule for fake tensors; that of 2.13 gives a symbol."""
    with FakeTensorMode(shape_env=ShapeEnv()) as mode:
        fake = mode.from_tensor(torch.zeros(3, dtype=torch.int64))
        found = torch.ops.aten._unique.default(fake)
    graph = fx.Graph()
    node = graph.call_function(torch.ops.aten._unique.default, (graph.placeholder("x"),))
    node.meta["val"] = (fake, fake) if size == 3 else found
    assert trace._has_made_up_size(node) == (size == 3)


def gathered(x: Tensor, index: Tensor) -> Tensor:
    return x[index]


def repeated(x: Tensor, counts: Tensor) -> Tensor:
    return torch.repeat_interleave(x, counts, output_size=5)


@pytest.mark.parametrize(("function", "index"), [(gathered, [1, 0]), (repeated, [2, 0, 3])])
def test_a_size_that_is_given_is_compiled(function: object, index: list[int]) -> None:
    x, given = torch.arange(3.0), torch.tensor(index)
    before = totals()["eager_graphs"]
    found = torch.compile(function, backend="assay", fullgraph=True)(x, given)  # type: ignore[call-overload]
    assert torch.equal(found, function(x, given)) and totals()["eager_graphs"] == before  # type: ignore[operator]
