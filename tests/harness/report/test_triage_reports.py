"""`assay compare`: what got worse between two reports."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from assay.harness.cli.commands import commands
from assay.harness.report.triage import Change, ReportError, compare, read


def entry(**fields: Any) -> dict[str, Any]:
    return {"case": "a", "mode": "infer", "backend": "b", "verdict": "same", "eager_ms": 2.0, "ms": 1.0} | fields


def bench_entry(**fields: Any) -> dict[str, Any]:
    return entry(against="inductor", speed_ratio=2.0, speed_spread=[1.9, 2.1], compile_s=1.0) | fields


def run_report(*results: dict[str, Any]) -> dict[str, Any]:
    return {"schema": 1, "environment": {}, "results": list(results)}


def bench_report(*rows: dict[str, Any]) -> dict[str, Any]:
    return {"schema": 1, "environment": {}, "rows": list(rows)}


def worse(changes: list[Change]) -> list[bool]:
    return [change.is_worse for change in changes]


def test_compare_equal_reports_have_no_changes() -> None:
    assert compare(run_report(entry()), run_report(entry()), 0.1) == []


def test_compare_names_a_verdict_that_was_same() -> None:
    (change,) = compare(run_report(entry()), run_report(entry(verdict="crash")), 0.1)
    assert str(change) == "worse  a infer b: verdict same -> crash"
    assert worse(compare(run_report(entry(verdict="crash")), run_report(entry()), 0.1)) == [False]


def test_compare_sees_a_new_field_under_an_old_verdict() -> None:
    old = entry(verdict="diverged", differences=[{"field": "stride", "path": "output", "detail": ""}])
    new = entry(verdict="diverged", differences=[{"field": "alias", "path": "output", "detail": ""}])
    changes = compare(run_report(old), run_report(new), 0.1)
    assert [(change.what, change.is_worse) for change in changes] == [
        ("now differs in alias", True),
        ("differs no more in stride", False),
    ]


@pytest.mark.parametrize(("ms", "expected"), [(1.05, []), (1.5, [True]), (0.5, [False])])
def test_compare_run_speed_beyond_the_tolerance(ms: float, expected: list[bool]) -> None:
    assert worse(compare(run_report(entry()), run_report(entry(ms=ms)), 0.1)) == expected


def test_compare_bench_speed_beyond_both_spreads() -> None:
    overlapping = bench_entry(speed_ratio=1.8, speed_spread=[1.7, 1.95])
    apart = bench_entry(speed_ratio=1.8, speed_spread=[1.75, 1.85])
    assert compare(bench_report(bench_entry()), bench_report(overlapping), 0.1) == []
    assert worse(compare(bench_report(bench_entry()), bench_report(apart), 0.1)) == [True]


def test_compare_counts_graph_breaks_generated_nodes_and_compile_time() -> None:
    old = entry(graph_breaks=0, nodes_generated=10, compile_s=1.0)
    new = entry(graph_breaks=1, nodes_generated=9, compile_s=2.0)
    assert worse(compare(run_report(old), run_report(new), 0.1)) == [True, True, True]
    assert worse(compare(run_report(new), run_report(old), 0.1)) == [False, False, False]


def test_compare_a_row_that_is_gone_is_worse_and_a_new_one_is_not() -> None:
    changes = compare(run_report(entry()), run_report(entry(case="c")), 0.1)
    assert [str(change) for change in changes] == [
        "worse  a infer b: gone; it was same",
        "       c infer b: new; it is same",
    ]


def test_compare_reports_of_two_kinds_is_an_error() -> None:
    with pytest.raises(ReportError, match="compare two of one kind"):
        compare(run_report(), bench_report(), 0.1)


@pytest.mark.parametrize(
    ("text", "message"), [("{", "not JSON"), ("[]", "not a report"), ('{"schema": 2}', "schema 1")]
)
def test_read_says_what_is_wrong_with_a_file(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "report.json"
    path.write_text(text)
    with pytest.raises(ReportError, match=message):
        read(path)


def test_compare_command_exits_by_what_got_worse(tmp_path: Path) -> None:
    good, bad = tmp_path / "good.json", tmp_path / "bad.json"
    good.write_text(json.dumps(run_report(entry())))
    bad.write_text(json.dumps(run_report(entry(verdict="diverged"))))
    runner = CliRunner()
    regression = runner.invoke(commands, ["compare", str(good), str(bad)])
    assert regression.exit_code == 1 and "1 worse, 0 other" in regression.output
    assert runner.invoke(commands, ["compare", str(bad), str(good)]).exit_code == 0
    missing = runner.invoke(commands, ["compare", str(good), str(tmp_path / "none.json")])
    assert missing.exit_code == 2 and "none.json: cannot be read" in missing.output
