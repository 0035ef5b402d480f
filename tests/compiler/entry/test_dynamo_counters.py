"""Dynamo's counters of the graphs that a backend was given."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch._dynamo.exc import BackendCompilerFailed
from torch._dynamo.utils import counters


def broken(x: Tensor) -> Tensor:
    y = x.sin()
    torch._dynamo.graph_break()
    return y.cos()


def counted(f: Callable[[Tensor], Tensor], **options: object) -> dict[str, int]:
    torch._dynamo.reset()
    counters.clear()
    torch.compile(f, backend="assay", options=options)(torch.ones(3))
    return dict(counters["aot_autograd"])


def test_each_graph_is_counted_as_torchs_backends_count_it() -> None:
    assert counted(broken) == {"total": 2, "ok": 2}
    torch._dynamo.reset()
    counters.clear()
    torch.compile(broken, backend="aot_eager")(torch.ones(3))
    assert dict(counters["aot_autograd"]) == {"total": 2, "ok": 2}


def test_a_graph_whose_compile_raises_is_counted_as_not_ok() -> None:
    torch._dynamo.reset()
    counters.clear()
    with pytest.raises(BackendCompilerFailed, match="Unsupported"):
        torch.compile(torch.sin, backend="assay", options={"fallback": "error"})(torch.eye(3).to_sparse())
    assert dict(counters["aot_autograd"]) == {"total": 1, "not_ok": 1}


def test_a_graph_that_runs_in_eager_is_counted_as_not_ok() -> None:
    torch._dynamo.reset()
    counters.clear()
    torch.compile(torch.sin, backend="assay")(torch.eye(3).to_sparse())
    assert dict(counters["aot_autograd"]) == {"total": 1, "not_ok": 1}
