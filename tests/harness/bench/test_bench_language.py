"""`assay.harness.bench.language`: what passes, and figures measured in processes of their own."""

from __future__ import annotations

import json

import pytest
import torch
from rich.console import Console
from torch import Tensor

from assay.harness.bench import language, language_worker
from assay.harness.bench.language import Figure, Language, Plan, Row, Subject, figures, timed

PLAN = Plan("assay", "eager", "", "cpu", 1, 300)


@pytest.mark.parametrize(
    ("row", "passes"),
    [
        (Row("a", "beside", 1.0, 1.01), True),
        (Row("a", "beside", 1.0, 0.99), False),
        (Row("a", "over", 1.2, 1.19), True),
        (Row("a", "over", 1.2, 1.21), False),
        (Row("a", "an_input", 5.0, 5.1), False),
        (Row("a", "over", 1.2, error="AssertionError: other values"), False),
    ],
)
def test_a_figure_is_at_least_or_at_most_its_bar(row: Row, passes: bool) -> None:
    done = Language((row,), False)
    assert done.passes is passes
    data = json.loads(json.dumps(language.document(done, {"torch": "2"})))
    assert data["rows"][0]["passes"] is passes
    language.show(Console(width=200), done)


def test_a_figure_has_a_simpler_program_where_it_is_compared_with_one() -> None:
    for figure in figures().values():
        assert (figure.simpler is None) is (figure.comparison == "beside"), figure.name


def test_a_figure_is_measured_in_a_process_of_its_own() -> None:
    row = timed(figures()["one_item"], PLAN)
    assert not row.error and row.value and row.ms and row.other_ms
    assert row.generated == row.nodes and row.eager == 0, row


def test_a_program_that_is_not_eagers_has_no_figure(monkeypatch: pytest.MonkeyPatch) -> None:
    def make(device: str) -> Subject:
        def f(x: Tensor) -> Tensor:
            return x * (1 if torch.compiler.is_compiling() else 2)

        return Subject(f, ((torch.ones(4, device=device),),))

    wrong = {"wrong": Figure("wrong", "beside", 1.0, make)}
    monkeypatch.setattr(language_worker, "figures", lambda: wrong)
    said = language_worker.answer(language.Request("wrong", "assay", "eager", "cpu", 1))
    assert said["error"].startswith("AssertionError"), said
