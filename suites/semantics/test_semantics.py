"""Every program of this suite is as eager on our backends; sizes that change cost one recompile."""

from __future__ import annotations

import pytest
import torch

from compiler import journal
from compiler.fx import assay
from harness.case import Case
from harness.discover import discover
from harness.run import run_case

CASES = discover(["semantics"])


@pytest.mark.parametrize("backend", ["assay", "assay_reference"])
@pytest.mark.parametrize("mode", ["infer", "train"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_semantics_are_eagers(case: Case, mode: str, backend: str) -> None:
    result = run_case(case, mode, backend)
    assert result.verdict == "same", (result.detail, result.differences)


@pytest.mark.parametrize("case", [c for c in CASES if "raises" not in c.tags], ids=lambda case: case.name)
def test_semantics_are_compiled_and_not_given_back_to_eager(case: Case) -> None:
    journal.reset()
    for mode in case.modes:
        run_case(case, mode, "assay")
    assert journal.totals()["compiles"] and not journal.totals()["eager_graphs"]


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
