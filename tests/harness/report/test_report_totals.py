"""`assay.harness.report.documents`: totals, formats, and the JSON document."""

from __future__ import annotations

import json
import math
import subprocess
from pathlib import Path

import pytest

from assay.harness.judge.ledger import Judgement
from assay.harness.outcome import Difference, Result
from assay.harness.report import documents as report
from assay.harness.report.documents import Row
from assay.harness.report.environment import commit
from assay.harness.track.measure import position_of

ENVIRONMENT = {"torch": "2.13.0", "cpu": "a processor", "date": "2026-01-01", "gpu": None}


def row(verdict: str = "same", *, passes: bool | None = None, notes: tuple[str, ...] = (), **fields: object) -> Row:
    result = Result("suite.case", "infer", "eager", verdict, **fields)  # type: ignore[arg-type]
    return Row(result, Judgement(verdict == "same" if passes is None else passes, notes))


def test_totals_mean_only_over_same() -> None:
    rows = [
        row(eager_ms=4.0, ms=1.0, compile_s=1.0, nodes=10, nodes_generated=6, graph_breaks=1),
        row(eager_ms=1.0, ms=1.0, compile_s=2.0, nodes=30, nodes_generated=24, graph_breaks=0),
        row("diverged", eager_ms=100.0, ms=1.0, compile_s=50.0, nodes=1000, nodes_generated=0, graph_breaks=9),
    ]
    totals = report.total(rows)
    assert totals.speed == pytest.approx(2.0)
    assert (totals.compile_s, totals.nodes, totals.nodes_generated, totals.graph_breaks) == (3.0, 40, 30, 1)
    assert totals.generated == 0.75
    assert (totals.rows, totals.passed, totals.verdicts) == (3, 2, {"same": 2, "diverged": 1})


def test_totals_of_nothing_claim_nothing() -> None:
    totals = report.total([])
    assert (totals.rows, totals.passed, totals.speed, totals.generated) == (0, 0, None, None)


def test_totals_pass_what_the_ledger_knows_but_do_not_call_it_same() -> None:
    totals = report.total([row("diverged", passes=True, notes=("stride: known: why",))])
    assert (totals.passed, totals.verdicts) == (1, {"diverged": 1})


def test_json_has_every_key_of_the_schema(tmp_path: Path) -> None:
    difference = Difference("stride", "output.0", "(1, 4) is not (4, 1)")
    diverged = row("diverged", differences=(difference,), fallbacks={"aten.mm": 2}, nodes=3, nodes_generated=1)
    path = tmp_path / "report.json"
    report.write_json(path, report.document([diverged], ENVIRONMENT))
    data = json.loads(path.read_text())
    assert data["schema"] == 1
    assert data["environment"] == ENVIRONMENT
    (result,) = data["results"]
    assert {
        "case", "mode", "backend", "verdict", "differences", "eager_ms", "ms", "compile_s", "nodes",
        "nodes_generated", "fallbacks",
    } <= result.keys()  # fmt: skip
    assert result["differences"] == [
        {"field": "stride", "path": "output.0", "detail": "(1, 4) is not (4, 1)", "act": "", "kind": "differs"}
    ]
    assert (result["fallbacks"], result["nodes"], result["nodes_generated"]) == ({"aten.mm": 2}, 3, 1)
    assert (result["eager_ms"], result["ms"], result["compile_s"]) == (None, None, None)


def test_json_is_strict_even_where_a_number_is_not_finite(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    report.write_json(path, report.document([row(eager_ms=math.nan, ms=math.inf)], ENVIRONMENT))
    (result,) = json.loads(path.read_text(), parse_constant=lambda name: pytest.fail(name))["results"]
    assert (result["eager_ms"], result["ms"]) == (None, None)


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.012345, "0.0123"), (4.5, "4.50"), (12.34, "12.3"), (99.99, "100"), (1234.5, "1234"), (None, report.UNKNOWN)],
)
def test_milliseconds_have_three_digits(value: float | None, text: str) -> None:
    assert report.milliseconds(value) == text


def test_speed_bars_grow_from_the_middle_and_stay_on_the_track() -> None:
    rows = [row(eager_ms=8.0, ms=1.0), row(eager_ms=1.0, ms=4.0), row(eager_ms=1.0, ms=1.0)]
    widest = report.widest_speed(rows)
    faster, slower, equal = (report.speed_bar(each.speed, widest) for each in rows)
    assert faster == report.Bar(50, 50, True)
    assert slower is not None and slower.start + slower.length == pytest.approx(50) and not slower.is_gain
    assert equal == report.Bar(50, 0, True)
    assert report.speed_bar(None, widest) is None


def test_fallbacks_are_summed_and_sorted() -> None:
    rows = [row(fallbacks={"aten.mm": 1, "aten.sort": 3}), row(fallbacks={"aten.mm": 4})]
    assert report.fallback_totals(rows) == [("aten.mm", 5), ("aten.sort", 3)]


def test_the_commit_is_of_the_project_that_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    git = ["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@b"]
    for words in (["init", "-q"], ["commit", "-q", "--allow-empty", "-m", "one"]):
        subprocess.run([*git, *words], check=True)
    monkeypatch.setenv("ASSAY_PROJECT", str(tmp_path))
    head = subprocess.run([*git, "rev-parse", "HEAD"], capture_output=True, text=True, check=True).stdout
    assert (found := commit()) is not None and head.startswith(found) and position_of() == 1
