"""Reductions that wait for others, each needed by several: every stage takes each of them once."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from assay.reference.loops import as_function
from tests import kernel_ir as ir
from tests.kernel_ir import call, i, k, load, loops, reduce, store

HEIGHT = 24
"""Taken once for each that needs it, so many in a row would be 2^24."""


def chain(rows: int, length: int) -> ir.Run:
    """`m = max(x + m % 5 - min(x - m))` over and over."""
    x = torch.arange(rows * length).view(rows, length) * 5 % 11
    value, five = load("x", i * length + k, torch.int64), ir.const(5, torch.int64)
    found, expected = ir.const(0, torch.int64), torch.zeros(rows, 1, dtype=torch.int64)
    for _ in range(HEIGHT // 2):
        least = reduce("min", call("sub", value, found), k=length)
        found = reduce("max", call("sub", call("add", value, call("mod_int", found, five)), least), k=length)
        expected = (x + expected % 5 - (x - expected).amin(1, True)).amax(1, True)
    return ir.make_run(loops(i=rows), [store("y", i, found)], {"x": x}, {"y": expected.view(-1)})


RUNS = {"chain beside others": chain(40, 12), "chain of few rows": chain(3, 12), "chain of long rows": chain(3, 100)}


@pytest.mark.parametrize("name", RUNS)
def test_reference_takes_nested_reductions_once(name: str) -> None:
    run = RUNS[name]
    assert torch.equal(ir.launch(as_function(run.kernel), run)["y"], run.expected["y"])


@pytest.mark.parametrize("name", RUNS)
def test_emit_takes_nested_reductions_once(name: str, tmp_path: Path) -> None:
    run = RUNS[name]
    function = ir.load_runs([run], tmp_path)[run.kernel.name]
    assert torch.equal(ir.launch(function, run)["y"], run.expected["y"])
