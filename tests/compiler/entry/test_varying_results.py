"""Results whose sizes are symbols: Dynamo is told, so that the next graph has symbols for them at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import fx

from assay.compiler.entry.dynamo import assay
from assay.compiler.torch_compat import BEFORE_2_13

NOTED = "_dynamo_propagated_dynamic_indices"

pytestmark = pytest.mark.skipif(BEFORE_2_13, reason="torch looks for no such note")


def _noted(value: torch.Tensor) -> set[int]:
    found: set[int] = getattr(value, NOTED, set())
    return found


def _matrix(rows: int) -> torch.Tensor:
    return torch.ones(rows, 3, requires_grad=True)


def test_results_of_symbolic_sizes_are_noted() -> None:
    """Views of them too, and nothing that the call is given."""

    def f(x: torch.Tensor) -> Sequence[torch.Tensor]:
        return x * 2, x.t(), x.sum(0), x

    torch._dynamo.reset()
    compiled = torch.compile(f, backend="assay", fullgraph=True)
    assert not any(map(_noted, compiled(_matrix(4))))
    assert [_noted(value) for value in compiled(_matrix(5))] == [{0}, {1}, set(), set()]


def test_a_graph_that_is_given_a_noted_result_is_compiled_once() -> None:
    """It was compiled for a number first where nothing was noted, and then again for a symbol."""
    graphs: list[fx.GraphModule] = []

    def counting(gm: fx.GraphModule, inputs: Sequence[object]) -> Any:
        graphs.append(gm)
        return assay(gm, inputs)

    def f(x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        torch._dynamo.graph_break()
        return y.cos()

    torch._dynamo.reset()
    compiled = torch.compile(f, backend=counting)
    torch._dynamo.mark_dynamic(first := _matrix(4), 0)
    compiled(first)
    compiled(_matrix(6))
    assert len(graphs) == 2


def test_hooks_on_saved_tensors_see_what_is_noted() -> None:
    seen: list[set[int]] = []

    def pack(value: torch.Tensor) -> torch.Tensor:
        seen.append(_noted(value))
        return value

    torch._dynamo.reset()
    compiled = torch.compile(lambda x: x.exp() @ x.t(), backend="assay", fullgraph=True)
    compiled(_matrix(4))
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda value: value):
        compiled(_matrix(5))
    assert seen and all(seen)
