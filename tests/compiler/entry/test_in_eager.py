"""Graphs that eager runs: what their nodes say, however torch would write that as code."""

from __future__ import annotations

import operator

import pytest
import torch
from torch import Tensor, fx

from assay.compiler.capture.ambient import autocast_depth
from assay.compiler.entry.dynamo import assay
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


@pytest.mark.parametrize("is_cut", [False, True])
def test_an_error_inside_autocast_leaves_it(is_cut: bool) -> None:
    """Else autocast would keep its casts of weights (upstream_bugs/error_inside_autocast_leaves_it_entered.py)."""

    def f(x: Tensor, rows: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = x @ x
            if is_cut:
                x.new_zeros(1).expand(3).zero_()
            return y[rows].relu()

    compiled = torch.compile(f, backend=assay)
    depth = autocast_depth()
    compiled(torch.randn(4, 4), torch.tensor([0, 1]))
    for _ in range(2):
        with pytest.raises(IndexError):
            compiled(torch.randn(4, 4), torch.tensor([0, 9]))
        assert autocast_depth() == depth and not torch.is_autocast_enabled("cpu")
