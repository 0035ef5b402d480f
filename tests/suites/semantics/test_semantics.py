"""Every program of this suite is as eager on our backends, and compiled; sizes that change cost one recompile.

Each case runs in all its modes on one path, chosen by its name so that every path is walked; the whole of
them, every case on every path, is `assay run semantics --backend assay --backend assay-aot`.
"""

from __future__ import annotations

import datetime
import zlib

import pytest
import torch

from assay.compiler import journal
from assay.compiler.entry.dynamo import assay
from assay.harness.case import Case
from assay.harness.discover import discover
from assay.harness.judge import ledger
from assay.harness.run import RunRequest, run_case
from assay.suites.semantics._summary import counted, table

CASES = discover(["semantics"])
KNOWN = ledger.read()
ATEN = "assay,target=aten"
PATHS = (ATEN, f"{ATEN},dynamic", ATEN, "assay-aot", ATEN, "assay", ATEN, f"{ATEN},dynamic")
"""Most of them call every operator through ATen, which costs no C++ compile."""


KEPT_BY_PYTHON = {"semantics.list_of_a_class_grows_with_each_call"}
"""Cases that keep what a forward makes: a recording ahead of time leaves tensors of its own there."""


def _path(case: Case) -> str:
    """By the case's name, so that a case more or less moves no other. Whole backwards have a path of their own."""
    if "whole-backward" in case.tags:
        return "eager-none,own_backward,target=aten"
    if case.name in KEPT_BY_PYTHON:
        return ATEN
    return PATHS[zlib.crc32(case.name.encode()) % len(PATHS)]


COMPILED_EACH_CALL = {"semantics.module_counts_its_calls_in_a_number"}
"""Cases of which each call is of another kind: behind the front end's limit they run in eager."""

PLACED = [pytest.param(case, _path(case), id=f"{case.name}-{_path(case)}") for case in CASES]

EAGER = {
    "an operator of the user's that writes one memory through aliases": {
        "operator_mutates_integers_through_data",
    },
    "a backward that writes an input": {"input_mutated_in_backward"},
    "a backward that writes the gradient that it is given": {
        "gradient_of_the_callers_mutated_in_backward",
    },
    "a checkpointed region with an effect": {"effect_in_a_checkpoint"},
    "a write of an inference tensor outside of inference mode": {"inference_buffer_written_outside_inference_mode"},
    "more overlaps than are specialised for": {"many_overlaps_in_turn", "many_overlaps_in_turn_with_gradient"},
    "a gradient that is kept of an input that is written": {"gradient_retained_by_an_inner_input_that_is_mutated"},
    "a view that an autograd.Function made": {
        "argument_returned_by_a_custom_function",
    },
    "Dynamo leaves it to eager": {
        "metadata_of_an_input_changed_and_returned",
        "state_forked_inside",
        "gradient_retained_inside_by_an_intermediate_that_is_returned",
        "full_backward_hooks_on_the_layers_of_a_module",
        "full_backward_hooks_that_replace_gradients",
    },
    "Dynamo leaves calls under a transform to eager": {
        "gradient_of_a_call",
        "gradient_of_a_call_that_captures_a_leaf",
        "gradient_and_value_of_a_call",
        "gradient_of_the_gradient_of_a_call",
        "vector_jacobian_product_of_a_call",
        "jacobian_vector_product_of_a_call",
        "call_over_a_batch",
        "call_over_a_batch_of_one_of_two_inputs",
        "gradients_of_a_call_for_each_sample",
        "jacobian_of_a_call_row_by_row",
        "jacobian_of_a_call_column_by_column",
        "hessian_of_a_call",
        "gradient_with_respect_to_the_parameters_of_a_module",
    },
    "anomaly mode names the line of each operation": {
        "anomaly_mode_names_the_line_of_the_user",
        "anomaly_mode_where_nothing_is_wrong",
    },
    "forward-mode differentiation": {"forward_mode_through_a_call"},
    "nothing is computed": {"output_is_an_input_twice"},
}
"""Cases that are given back to eager, by the reason. One that no longer is must go from here."""
GIVEN_BACK = {f"semantics.{name}" for names in EAGER.values() for name in names}


@pytest.mark.parametrize(("case", "backend"), PLACED)
def test_semantics_are_eagers_and_compiled(case: Case, backend: str) -> None:
    journal.reset()
    for mode in case.modes:
        with torch._dynamo.config.patch(fail_on_recompile_limit_hit=case.name not in COMPILED_EACH_CALL):
            result = run_case(case, mode, backend, RunRequest(timed=False))
        replay = f"assay run {case.name} --mode {mode} --backend {backend} --shapes static"
        judged = ledger.judge(result, KNOWN, datetime.date.today())
        assert judged.passes, (replay, result.verdict, result.detail, result.differences, judged.notes)
    totals = journal.totals()
    is_given_back = not totals["compiles"] or bool(totals["eager_graphs"])
    if backend == ATEN and "raises" not in case.tags:  # a graph that raises as eager does is eager's
        assert is_given_back or case.name not in GIVEN_BACK, totals


def test_semantics_of_cases_given_back_are_cases() -> None:
    assert {case.name for case in CASES} >= GIVEN_BACK
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


@pytest.mark.parametrize("case", discover(["semantics.layout", "semantics.structure"]), ids=lambda case: case.name)
def test_semantics_are_eagers_on_the_reference(case: Case) -> None:
    """The reference replays neither view chains nor versions; it is held to what it is for."""
    for mode in case.modes:
        result = run_case(case, mode, "assay_reference", RunRequest(timed=False))
        judged = ledger.judge(result, KNOWN, datetime.date.today())
        assert judged.passes, (mode, result.verdict, result.detail, result.differences)


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
