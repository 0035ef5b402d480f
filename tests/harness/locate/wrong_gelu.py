"""A backend with a bug that shows at one node of one graph, and a model that has it: what locating is tested on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, fx, nn

from assay.harness.case import case
from assay.harness.locate.rungs import Rung, register_ladder


def traced(gm: fx.GraphModule, example_inputs: Sequence[object]) -> Callable[..., Any]:
    """A right rung under the wrong one."""
    return lambda *args: gm.forward(*args)


def wrong(gm: fx.GraphModule, example_inputs: Sequence[object]) -> Callable[..., Any]:
    """Each gelu is computed by its approximation."""
    for node in gm.graph.find_nodes(op="call_function", target=torch.nn.functional.gelu):
        node.kwargs = {**node.kwargs, "approximate": "tanh"}
    gm.recompile()
    return lambda *args: gm.forward(*args)


NAME = "tests.harness.locate.wrong_gelu"
register_ladder(f"{NAME}:wrong", (Rung("traced", f"{NAME}:traced"),))


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 8), nn.Linear(8, 2)

    def forward(self, x: Tensor) -> Tensor:
        h = self.first(x.relu() * 2).softmax(-1)
        torch._dynamo.graph_break()
        h = torch.nn.functional.gelu(h.tanh() + 1)
        return self.second(h).softmax(-1)


@case()
def model() -> Any:
    return Model(), (torch.randn(3, 4),), {}


@case()
def right() -> Any:
    return nn.Linear(2, 2), (torch.randn(1, 2),), {}
