"""Every program of this suite is as eager on our backends, and compiled; sizes that change cost one recompile.

All cases run with static shapes and every operator through ATen, which costs no C++ compile. Every fourth runs with
dynamic shapes too, every fourth without Dynamo, every tenth with generated kernels and on the reference: the whole of
them is `assay run semantics --backend assay --backend assay-aot`.
"""

from __future__ import annotations

import pytest
import torch

from compiler import journal
from compiler.fx import assay
from harness.case import Case
from harness.discover import discover
from harness.run import run_case
from suites.semantics._summary import counted, table

CASES = discover(["semantics"])
SAMPLES = {
    "assay,target=aten,dynamic": CASES[0::4],
    "assay-aot": CASES[1::4],
    "assay-aot,dynamic": CASES[2::16],
    "assay": CASES[3::10],
    "assay_reference": CASES[4::10],
}

EAGER = {
    "inference_mode_inside": "outputs of which some are inference tensors and some are not",
    "operator_in_place_returns_its_argument": "functionalization takes no operator of the user's that returns an alias",
    "input_mutated_in_backward": "a backward that writes an input",
}
"""Cases that are given back to eager, each with the reason. One that no longer is must go from here."""


def check(case: Case, backend: str) -> None:
    for mode in case.modes:
        result = run_case(case, mode, backend, timed=False)
        replay = f"assay run {case.name} --mode {mode} --backend {backend} --shapes static"
        assert result.verdict == "same", (replay, result.detail, result.differences)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_semantics_are_eagers_and_compiled(case: Case) -> None:
    journal.reset()
    check(case, "assay,target=aten")
    totals = journal.totals()
    is_given_back = not totals["compiles"] or bool(totals["eager_graphs"])
    if "raises" not in case.tags:  # a graph that raises as eager does is eager's
        assert is_given_back == (case.name.removeprefix("semantics.") in EAGER), totals


SAMPLED = [pytest.param(case, backend, id=f"{case.name}-{backend}") for backend in SAMPLES for case in SAMPLES[backend]]


@pytest.mark.parametrize(("case", "backend"), SAMPLED)
def test_semantics_are_eagers_on_every_path(case: Case, backend: str) -> None:
    check(case, backend)


def test_semantics_of_cases_given_back_are_cases() -> None:
    assert {f"semantics.{name}" for name in EAGER} <= {case.name for case in CASES}
    assert len(CASES) >= 150 and all(set(case.shapes) == {"static", "dynamic"} for case in CASES)


def test_semantics_summary_counts_each_row_once() -> None:
    def row(case: str, backend: str, verdict: str, *fields: str) -> dict[str, object]:
        return {"case": case, "backend": backend, "verdict": verdict, "differences": [{"field": f} for f in fields]}

    rows = [
        row("a", "assay", "same"),
        row("a", "assay,dynamic", "crash", "error"),
        row("b", "assay", "diverged", "version"),
        row("b", "other", "diverged", "version", "values"),
    ]
    text = table(counted(rows, {"a": "one", "b": "two"}))
    assert "| one | 1/2 | 0/0 |" in text and "| **all** | 1/3 | 0/1 |" in text
    assert "| diverged in versions only | 1 | 0 |" in text and "| diverged | 0 | 1 |" in text


@pytest.mark.parametrize("grad", [False, True], ids=["no_grad", "grad"])
def test_dynamic_batch_of_five_sizes_recompiles_once(grad: bool) -> None:
    def f(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return torch.softmax(x @ w, -1).view(-1) * x.shape[0]

    torch._dynamo.reset()
    journal.reset()
    compiled = torch.compile(f, backend=assay)
    w = torch.randn(4, 6, requires_grad=grad)
    for rows in (3, 5, 2, 9, 7):
        x = torch.randn(rows, 4)
        got, want = compiled(x, w), f(x, w)
        torch.testing.assert_close(got, want)
        if grad:
            torch.testing.assert_close(torch.autograd.grad(got.sum(), w), torch.autograd.grad(want.sum(), w))
    assert journal.totals()["compiles"] == 2 and not journal.totals()["eager_graphs"]
