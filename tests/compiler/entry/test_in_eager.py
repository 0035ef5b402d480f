"""Graphs that eager runs: what their nodes say, however torch would write that as code."""

from __future__ import annotations

import operator

import pytest
import torch
from torch import fx

from assay.compiler.entry.graph_as_call import in_eager


def power_of(base: float) -> fx.GraphModule:
    graph = fx.Graph()
    exponent = graph.placeholder("exponent")
    graph.output((graph.call_function(operator.pow, (base, exponent)),))
    return fx.GraphModule({}, graph)


@pytest.mark.parametrize("base", [-2.5, -2, 2.5, -0.0])
def test_power_of_a_number_is_that_of_the_node(base: float) -> None:
    exponent = torch.tensor([0.0, 1.0, 2.0])
    (found,) = in_eager(power_of(base))(exponent)
    torch.testing.assert_close(found, base**exponent, rtol=0, atol=0)
