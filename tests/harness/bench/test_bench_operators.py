"""`assay.harness.bench.operators`: the bar, the ledger, and a slice of the programs in a process of its own."""

from __future__ import annotations

import datetime
import json

import pytest
import torch
from rich.console import Console

from assay.harness.bench import operators
from assay.harness.bench.operators import LEAST_US, MOST, Operators, Plan, Row, measured, programs
from assay.harness.judge.ledger import Known

PLAN = Plan("assay", ("eager",), "", 1, 0, 200)
KNOWN = Known("operators.sort.*", "infer", "assay", "time", "radix", "me", datetime.date(2999, 1, 1))


def row(program: str = "add", ratio: float | None = 1.0, against_us: float = 50.0, **given: str) -> Row:
    against = given.pop("against", "eager")
    return Row(program, "float32", "contiguous", against, (ratio or 0) * against_us, against_us, ratio, None, **given)


@pytest.mark.parametrize(
    ("found", "passes"),
    [
        (row(), True),
        (row(ratio=MOST + 0.01), False),
        (row(ratio=MOST + 0.01, against="inductor"), True),
        (row(ratio=3.0, against_us=LEAST_US / 2), True),
        (row("sort", 3.0), True),
        (row("sort", None, error="TypeError: no"), False),
        (row(ratio=None, refused="no such dtype"), True),
    ],
)
def test_operators_pass_within_the_bar_or_the_ledger(found: Row, passes: bool) -> None:
    done = Operators(PLAN, (found,), (KNOWN,), False)
    assert done.passes is passes
    data = json.loads(json.dumps(operators.document(done, {"torch": "2"})))
    assert data["rows"][0]["ratio"] == found.ratio and len(data["slow"]) == found.is_slow
    operators.show(Console(width=200), done)


def test_operators_measures_programs_in_a_process_of_its_own() -> None:
    chosen = [programs()[name] for name in ("cumsum.outer", "embedding_then_sum")]
    found = list(measured(chosen, PLAN))
    assert len(found) == sum(len(program.cells) for program in chosen)
    assert all(one.refused or (one.ours_us and one.against_us and one.ratio) for one in found), found
    assert {one.program for one in found if one.refused} <= {"embedding_then_sum"}


def test_operators_says_what_did_not_end() -> None:
    found = list(measured([programs()["sin"]], Plan("assay", ("eager",), "", 1, 0, 0.1)))
    assert len(found) == 6 and all("timeout" in one.error and one.is_slow for one in found)


@pytest.mark.parametrize("name", ["mean_of_middle", "pad_reflect", "cdist", "log1p_of_exp", "var_of_sub.outer"])
def test_operators_programs_are_calls_of_about_the_size(name: str) -> None:
    function, inputs = programs()[name].make(torch.float32, "transposed" if name == "pad_reflect" else "contiguous")
    function(*inputs)
    assert 1 << 14 <= sum(tensor.numel() for tensor in inputs) <= 1 << 20
