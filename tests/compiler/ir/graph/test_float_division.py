"""Divisions of a backward's numbers: those of floats, by zero too."""

from __future__ import annotations

import math
import pickle
import subprocess
import sys

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from assay.compiler import journal
from assay.compiler.entry.aot import aot_function, make_boxed_func
from assay.compiler.entry.dynamo import assay
from assay.compiler.ir.graph.float_division import divided
from assay.compiler.ir.graph.target_names import target_text

NUMBERS = st.floats() | st.sampled_from([0.0, -0.0, math.inf, -math.inf, math.nan])


@given(NUMBERS, NUMBERS)
def test_divided_is_the_quotient_of_float64(x: float, y: float) -> None:
    expected = (torch.tensor(x, dtype=torch.float64) / torch.tensor(y, dtype=torch.float64)).item()
    found = divided(x, y)
    assert found == expected or (math.isnan(found) and math.isnan(expected))
    assert math.isnan(found) or math.copysign(1, found) == math.copysign(1, expected)


def test_divided_has_a_name_that_other_processes_find() -> None:
    place, name = target_text(divided).split(" ")
    script = f"import importlib, pickle; print(pickle.loads({pickle.dumps(divided)!r}) is "
    script += f"getattr(importlib.import_module({place!r}), {name!r}))"
    assert subprocess.run([sys.executable, "-c", script], capture_output=True, text=True).stdout.strip() == "True"


def spread(x: Tensor) -> Tensor:
    return x.var(0, correction=2).sum()


@pytest.mark.filterwarnings("ignore:var.. degrees of freedom")
def test_gradient_of_a_spread_without_degrees_of_freedom_is_eagers() -> None:
    """By symbolic sizes, of which the first call has enough."""
    torch._dynamo.reset()
    journal.reset()
    compiled = torch.compile(spread, backend=assay, dynamic=True)
    for rows in (5, 2, 4):
        x = torch.randn(rows, 3, requires_grad=True)
        found, expected = (torch.autograd.grad(f(x), x)[0] for f in (compiled, spread))
        torch.testing.assert_close(found, expected, equal_nan=True)
    assert not journal.totals()["eager_graphs"]


def test_callers_compilers_see_pythons_division() -> None:
    seen: list[object] = []

    def compiler(module: torch.fx.GraphModule, _: object) -> object:
        seen.extend(node.target for node in module.graph.nodes)
        return make_boxed_func(module.forward)

    x = torch.randn(5, 3, requires_grad=True)
    function = aot_function(lambda x: x.var(0).sum(), fw_compiler=compiler, bw_compiler=compiler, dynamic=True)
    function(x).backward()
    assert divided not in seen
    torch.testing.assert_close(x.grad, torch.autograd.grad(x.var(0).sum(), x)[0])
