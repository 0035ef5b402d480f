"""A night keeps to its time and says what it cut; its summary is short; rows of every kind of report are taken."""

from __future__ import annotations

import dataclasses
import datetime
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

pytest.importorskip("sqlalchemy", reason="the store needs the extra `nightly`")
pytest.importorskip("alembic", reason="the store needs the extra `nightly`")
pytest.importorskip("plotly", reason="the figures need the extra `nightly`")

from assay.harness.batches.batch import AS_MUCH as AS_DYNAMO
from assay.harness.batches.batch_report import judged
from assay.harness.cli.night_commands import nightly
from assay.harness.judge.ledger import Judgement
from assay.harness.night import parts as night_parts
from assay.harness.night.done import Done, FolderError, held
from assay.harness.night.error_profiles import keep_errors, rows_to_profile
from assay.harness.night.night import MOST_LINES, Night, Settings, run_night
from assay.harness.night.parts import FIRST, Part, Place, Ran, arguments_of, parts, run_part
from assay.harness.outcome import Result
from assay.harness.remember.causes import locate_within
from assay.harness.remember.reports import Reported, keep_programs, reported
from assay.harness.remember.store import Kept, Store
from assay.harness.remember.verdict_on_run import FAILED, NEW, NOTHING_RAN, PASSED, judge_run
from assay.harness.search.hunt_worker import AS_MUCH
from assay.harness.site.errors import error_profiles
from tests.harness.night import killed
from tests.harness.remember.rows import FACTS, row
from tests.sources import ROOT

CASES = ROOT / "tests" / "harness" / "locate" / "wrong_gelu.py"
WRONG = "tests.harness.locate.wrong_gelu:wrong"


def test_parts_take_all_of_the_time() -> None:
    assert sum(part.share for part in parts(("assay",), 0)) == pytest.approx(1)


def test_parts_draw_others_each_night() -> None:
    one, other = ({part.name: part.arguments for part in parts(("assay",), seed)} for seed in (1, 2))
    assert {name for name in one if one[name] != other[name]} == {"ops", "programs", "machine"}


def test_a_part_whose_time_is_up_reports_what_it_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(killed.NAME, str(tmp_path))  # its second case never ends
    place, ended = Place(tmp_path), night_parts.ended

    def up_after_a_row(process: subprocess.Popen[bytes], limit_s: float) -> int | None:
        while not (document := night_parts.read_report(killed.ONLY, place)) or not document["results"]:
            time.sleep(0.2)
        return ended(process, limit_s)

    monkeypatch.setattr(night_parts, "ended", up_after_a_row)
    ran = run_part(killed.ONLY, 0.1, place)
    assert ran.status is not None and ran.line().endswith("s, cut short: its time was up")
    assert ran.document is not None and ran.line().startswith("zoo         1 row in")


def test_a_part_that_dies_is_said(tmp_path: Path) -> None:
    ran = run_part(Part("zoo", ("run", "nothing"), 1.0), 60.0, Place(tmp_path))
    assert ran.document is None and ran.line() == "zoo         wrote no report (exit status 2)"


def test_night_finds_the_cause_and_writes_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    only = Part("zoo", ("run", str(CASES), "--backend", WRONG, "--mode", "infer", "--filter", ".model"), 1.0)
    monkeypatch.setattr("assay.harness.night.night.parts", lambda backends, seed: (only,))
    settings = Settings((WRONG,), 90.0, tmp_path, f"sqlite:///{tmp_path}/runs.sqlite", only=("zoo",))
    done = run_night(settings)
    assert not done.passes and done.verdict.differences == 1
    assert done.page.is_file() and done.seconds < 90
    assert done.summary()[0].startswith("1 difference, 1 cause, 1 new")


def test_night_keeps_how_errors_grow(tmp_path: Path) -> None:
    """Of rows whose numbers differ and whose case is known; what nothing excuses comes first."""
    known = "tests.harness.locate.wrong_gelu.only_gelu"
    rows = [row("zoo.bert"), row("nowhere.x", "diverged", backend=WRONG), row("nowhere.y", "diverged", "stride", WRONG)]
    with Store.open(f"sqlite:///{tmp_path}/runs.sqlite") as store:
        run = store.begin(FACTS, {})
        for each in (
            *rows,
            row(known, "diverged", backend="eager", passes=True),
            row(known, "diverged", backend=WRONG),
        ):
            store.add(run, each)
        wanted = rows_to_profile(store.rows(run))
        assert [each.judgement.passes for each in wanted] == [False, False, True]
        assert keep_errors(store, run, 60.0) == 2
        (profile, *_) = error_profiles(store, store.rows(run)[4:])
    assert profile.leaves is not None and "gelu" in profile.lines[profile.leaves]["node"]


def test_a_night_that_was_killed_loses_the_case_in_flight(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(killed.NAME, str(tmp_path))
    first = subprocess.Popen([sys.executable, "-m", killed.__name__, str(tmp_path)], cwd=ROOT)
    while not _rows(tmp_path):
        assert first.poll() is None
        time.sleep(0.2)
    first.kill()
    first.wait()
    with held(tmp_path, 60.0):  # the part has been told, and has ended
        (tmp_path / "gate").touch()
    made = (tmp_path / "made").read_text()
    again = killed.night(tmp_path, continues=True)
    assert again.passes and sorted(row.result.case for row in again.verdict.rows) == ["killed.first", "killed.second"]
    assert "first" not in (tmp_path / "made").read_text().removeprefix(made)
    assert again.ran[0].document is not None and len(again.ran[0].document["results"]) == 2
    assert killed.night(tmp_path, continues=True).verdict.run.id != again.verdict.run.id  # as that one has ended


def _rows(folder: Path) -> list[Kept]:
    if not (folder / "night.jsonl").is_file():
        return []
    with Store.open(f"sqlite:///{folder}/runs.sqlite") as store:
        return store.rows(store.run("last"))


def test_a_part_that_has_ended_is_not_run_again(tmp_path: Path) -> None:
    done = Done.begin(tmp_path, "abc")
    done.end("zoo", 2.0, 0)
    with done.path.open("a") as file:
        file.write('{"part": "sema')  # killed in the middle of a line
    read = Done.read(tmp_path)
    assert read is not None and (read.run, read.parts) == ("abc", {"zoo": (2.0, 0)})


def test_programs_go_on_behind_the_last_one(tmp_path: Path) -> None:
    part, place = Part("programs", ("run", "programs", "--first", FIRST), 1.0), Place(tmp_path)
    assert arguments_of(part, place)[-1] == "0"
    place.report(part).write_text('{"programs": 30, "settings": {"first": 12}, "interrupted": true}')
    assert arguments_of(part, place)[-1] == "42"


def test_a_folder_is_one_nights_at_a_time(tmp_path: Path) -> None:
    with held(tmp_path, 0.0), pytest.raises(FolderError, match="another night runs in"), held(tmp_path, 0.0):
        pass


@pytest.mark.parametrize(
    ("given", "said"),
    [(("--backend", "nothing"), "nothing"), (("--only", "zo"), "the parts of a night are zoo, semantics")],
)
def test_a_night_of_nothing_is_refused(tmp_path: Path, given: tuple[str, str], said: str) -> None:
    done = CliRunner().invoke(nightly, [*given, "--output", str(tmp_path)])
    assert done.exit_code == 2 and said in done.output


def test_a_night_in_which_nothing_ran_has_its_own_status(tmp_path: Path) -> None:
    """The profile of a step keeps a row of its own, which is no row of a part."""
    with Store.open(f"sqlite:///{tmp_path}/runs.sqlite") as store:
        run = store.begin(FACTS, {})
        store.add(run, row("zoo.distilbert"))
        verdict = judge_run(store, run, None)
    zoo, _, _, programs, machine, selftest = parts(("mine",), 0)
    told = Ran(zoo, 9.0, 1, None, was_told=True)
    assert told.line() == "zoo         wrote no report (its time was up after 9 s)"

    def night(*ran: Ran, measurements: int = 0) -> Night:
        return Night(Settings(("mine",), 60.0, tmp_path, ""), verdict, (), tmp_path, 1.0, list(ran), measurements)

    nothing = [Ran(zoo, 1.0, 0, {"results": []}), Ran(programs, 1.0, 0, {"programs": 0}),
               Ran(machine, 1.0, 0, {"machine": []}), Ran(selftest, 1.0, 0, {"kinds": {}, "results": []})]  # fmt: skip
    for ran in ([], [told], nothing):
        empty = night(*ran)
        assert (empty.status, empty.passes) == (NOTHING_RAN, False)
        assert empty.summary()[0] == "nothing has run: this night says nothing of the backends"
    assert night(*nothing, measurements=3).status == NOTHING_RAN
    assert night(measurements=3).status == PASSED
    assert night(nothing[0], Ran(programs, 1.0, 0, {"programs": 2})).status == PASSED
    assert night(told, Ran(programs, 1.0, 0, {"programs": 2})).status == FAILED


def test_a_night_that_measures_nothing_ends_with_its_own_status(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("measured", "measured_by_asv", "keep_profiles"):
        monkeypatch.setattr(f"assay.harness.night.night.{name}", lambda *given, **named: ())
    done = CliRunner().invoke(nightly, ["--only", "measure", "--budget", "60", "--output", str(tmp_path)])
    assert done.exit_code == NOTHING_RAN and "nothing has run" in done.output


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
    documents: list[dict[str, Any]]
    documents = [{"results": [{**result, "passes": False, "notes": []}]}, {"failures": [{"result": result}]},
                 {"machine": [machine]}, {"results": [{"name": "a fault of the self-test"}]}]  # fmt: skip
    found = [[each.result.verdict for each in reported(document)] for document in documents]
    assert found == [["diverged"], ["diverged"], ["diverged"], []]


def test_what_fails_with_dynamo_alone_is_not_new() -> None:
    result = {"case": "programs.t_", "mode": "infer", "backend": "b", "verdict": "crash", "differences": []}
    drawn = {"result": result, "passes": True, "notes": ["Dynamo alone fails in the same way"], "source": "x = 1"}
    excused, failing = reported({"failures": [drawn | {"alone": AS_MUCH}, drawn | {"alone": "same"}]})
    today = datetime.date.today()
    assert excused.judged((), today).judgement == Judgement(True, ("Dynamo alone fails in the same way",))
    assert not failing.judged((), today).judgement.passes and failing.program == "x = 1"


def test_a_sample_that_dynamo_alone_fails_as_well_is_not_new() -> None:
    """The report of the batch lets it pass; what the ledger has excused is judged anew."""
    failed = Result("ops.a.float32.refused[1 into]", "infer", "b", "diverged", detail=f"both raise\n{AS_DYNAMO}")
    judgement, today = judged(failed, ()), datetime.date.today()
    assert judgement == Judgement(True, (AS_DYNAMO,))
    row = {**dataclasses.asdict(failed), "passes": True, "notes": list(judgement.notes)}
    (found,) = reported({"results": [row]})
    assert found.judged((), today).judgement == judgement
    (known,) = reported({"results": [{**row, "detail": "", "notes": ["values: known: a reason"]}]})
    assert not known.judged((), today).judgement.passes


DRAWN = """
import torch


def inputs():
    return (torch.linspace(-2, 2, 8),)


def program(x):
    return {call}
"""


@pytest.mark.parametrize(("call", "failed"), [("torch.nn.functional.gelu(x)", 3), ("x.sin()", None)])
def test_a_drawn_program_is_its_own_repro(tmp_path: Path, call: str, failed: int | None) -> None:
    with Store.open(f"sqlite:///{tmp_path}/runs.sqlite") as store:
        run = store.begin(FACTS, {})
        found = Reported(row("programs.gelu", "diverged", "values", WRONG).result, (), DRAWN.format(call=call))
        store.add(run, found.judged((), datetime.date.today()))
        keep_programs(store, run, [found])
        locate_within(store, run, 60.0)
        (cause,) = judge_run(store, run, None).of(NEW)
    assert cause.cluster.name.endswith("diverged values in gelu") and cause.cluster.body.get("failed") == failed
