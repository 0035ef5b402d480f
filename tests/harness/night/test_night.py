"""A night keeps to its time and says what it cut; its summary is short; rows of every kind of report are taken."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

pytest.importorskip("sqlalchemy", reason="the store needs the extra `nightly`")
pytest.importorskip("alembic", reason="the store needs the extra `nightly`")
pytest.importorskip("plotly", reason="the figures need the extra `nightly`")

from assay.harness.night import parts as night_parts
from assay.harness.night.night import MOST_LINES, Night, Settings, run_night
from assay.harness.night.parts import Part, Ran, parts, run_part
from assay.harness.remember.reports import results_of
from assay.harness.remember.store import Store
from assay.harness.remember.verdict_on_run import judge_run
from tests.harness.remember.rows import FACTS, row
from tests.sources import ROOT

CASES = ROOT / "tests" / "harness" / "locate" / "wrong_gelu.py"
WRONG = "tests.harness.locate.wrong_gelu:wrong"


def test_parts_take_all_of_the_time() -> None:
    assert sum(part.share for part in parts(("assay",), 0)) == pytest.approx(1)


def test_parts_draw_others_each_night() -> None:
    one, other = ({part.name: part.arguments for part in parts(("assay",), seed)} for seed in (1, 2))
    assert {name for name in one if one[name] != other[name]} == {"ops", "programs", "machine"}


def test_a_part_whose_time_is_up_reports_what_it_has(tmp_path: Path) -> None:
    part = Part("zoo", ("run", str(CASES), "--backend", "eager", "--timeout", "60"), 1.0)
    start = time.monotonic()
    ran = run_part(part, 12.0, tmp_path)
    assert time.monotonic() - start < 12.0 + night_parts.GRACE_S
    assert ran.document is not None and "rows in" in ran.line()


def test_a_part_that_dies_is_said(tmp_path: Path) -> None:
    ran = run_part(Part("zoo", ("run", "nothing"), 1.0), 60.0, tmp_path)
    assert ran.document is None and ran.line() == "zoo         wrote no report (exit status 2)"


def test_night_finds_the_cause_and_writes_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    only = Part("zoo", ("run", str(CASES), "--backend", WRONG, "--mode", "infer"), 1.0)
    monkeypatch.setattr("assay.harness.night.night.parts", lambda backends, seed: (only,))
    settings = Settings((WRONG,), 90.0, tmp_path, f"sqlite:///{tmp_path}/runs.sqlite", only=("zoo",))
    done = run_night(settings)
    assert not done.passes and done.verdict.differences == 1
    assert done.page.is_file() and done.seconds < 90
    assert done.summary()[0].startswith("1 differences, 1 causes, 1 new")


def test_summary_has_under_twenty_lines(tmp_path: Path) -> None:
    with Store.open(f"sqlite:///{tmp_path}/runs.sqlite") as store:
        run = store.begin(FACTS, {})
        for number in range(40):
            store.add(run, row(f"c{number}", "diverged", f"field_{number}"))
        verdict = judge_run(store, run, None)
    settings = Settings(("mine",), 60.0, tmp_path, "")
    ran = [Ran(part, 1.0, 0, {"results": []}) for part in parts(("mine",), 0)]
    lines = Night(settings, verdict, (), tmp_path, 1.0, ran).summary()
    assert len(lines) <= MOST_LINES and "more lines on the page" in lines[-2]


def test_rows_are_taken_of_every_kind_of_report() -> None:
    difference = {"field": "values", "path": "p", "detail": "d", "act": "", "kind": "differs"}
    result = {"case": "c", "mode": "infer", "backend": "b", "verdict": "diverged", "differences": [difference]}
    machine = {"plan": {"backend": "b"}, "failures": {"values": {"differences": [difference], "script": "x = 1"}}}
    documents = [{"results": [{**result, "passes": False, "notes": []}]}, {"failures": [{"result": result}]},
                 {"machine": [machine]}, {"results": [{"name": "a fault of the self-test"}]}]  # fmt: skip
    found = [[each.verdict for each in results_of(document)] for document in documents]
    assert found == [["diverged"], ["diverged"], ["diverged"], []]
