"""On a GPU what meets in one element of a half is added up in float32; elsewhere, and of other dtypes, ATen decides."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, fx
from torch._subclasses import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

from assay.compiler.capture.decompositions.wide_sums import embedding_gradient, put

aten = torch.ops.aten
HALVES = [torch.float16, torch.bfloat16]


def gradient(grad: Tensor, index: Tensor) -> Tensor:
    return embedding_gradient(grad, index, 5, -1, False)


def added(grad: Tensor, index: Tensor) -> Tensor:
    return put(grad, [index], grad, True)


def given(dtype: torch.dtype, device: str) -> tuple[Tensor, Tensor]:
    return torch.empty(4, 8, dtype=dtype, device=device), torch.empty(4, dtype=torch.int64, device=device)


def call_of(graph: fx.Graph, target: Any) -> fx.Node:
    (found,) = graph.find_nodes(op="call_function", target=target)
    return found


@pytest.mark.parametrize("dtype", HALVES, ids=str)
@pytest.mark.parametrize(
    ("function", "target"), [(gradient, aten.embedding_dense_backward.default), (added, aten.index_put.default)]
)
def test_halves_on_a_gpu(function: Any, target: Any, dtype: torch.dtype) -> None:
    with FakeTensorMode():
        graph = make_fx(function)(*given(dtype, "cuda")).graph
    call = call_of(graph, target)
    assert call.meta["val"].dtype is torch.float32
    assert graph.output_node().args[0].meta["val"].dtype is dtype  # type: ignore[union-attr]


def test_the_others_are_left_whole() -> None:
    with FakeTensorMode():
        grad, index = given(torch.bfloat16, "cuda")
        assert embedding_gradient(grad, index, 5, -1, True) is NotImplemented
        assert put(grad, [index], grad, False) is NotImplemented
        assert put(grad, [index], grad.float(), True) is NotImplemented
        for dtype, device in [(torch.float32, "cuda"), (torch.bfloat16, "cpu")]:
            assert gradient(*given(dtype, device)) is NotImplemented
            assert added(*given(dtype, device)) is NotImplemented
