"""Dynamo's counters of the graphs that a backend was given."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext

import pytest
import torch
from torch import Tensor, fx
from torch._dynamo.utils import counters

from assay.compiler.entry.dynamo import assay
from assay.compiler.errors import Unsupported


def broken(x: Tensor) -> Tensor:
    y = x.sin()
    torch._dynamo.graph_break()
    return y.cos()


def counted(f: Callable[[Tensor], Tensor]) -> dict[str, int]:
    torch._dynamo.reset()
    counters.clear()
    torch.compile(f, backend="assay")(torch.ones(3))
    return dict(counters["aot_autograd"])


def test_each_graph_is_counted_as_torchs_backends_count_it() -> None:
    assert counted(broken) == {"total": 2, "ok": 2}
    torch._dynamo.reset()
    counters.clear()
    torch.compile(broken, backend="aot_eager")(torch.ones(3))
    assert dict(counters["aot_autograd"]) == {"total": 2, "ok": 2}


def doubled() -> fx.GraphModule:
    graph = fx.Graph()
    graph.output((graph.call_function(torch.add, (graph.placeholder("x"), 0)),))
    return fx.GraphModule({}, graph)


@pytest.mark.parametrize("fallback", ["eager", "error"])
def test_a_graph_that_is_not_compiled_is_counted_as_not_ok(fallback: str) -> None:
    counters.clear()
    raised = pytest.raises(Unsupported, match="layout") if fallback == "error" else nullcontext()
    with raised:
        assay(doubled(), [torch.eye(3).to_sparse()], options={"fallback": fallback})
    assert dict(counters["aot_autograd"]) == {"total": 1, "not_ok": 1}
