"""Which rungs a bug may show on first, and what is counted of the bugs that were located."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from assay.harness.discover import discover
from assay.harness.locate.rungs import ladder_of
from assay.harness.processes.child import Child
from assay.harness.selftest import compiler_bank, locate_bank
from assay.harness.selftest.command import told_of
from assay.harness.selftest.compiler_bank import CompilerMutants, Failed
from assay.harness.selftest.locate_bank import (
    LIMIT_S,
    NOT_SHOWN,
    Located,
    OutOfTime,
    as_data,
    children_cpu_s,
    expected_rungs,
    killing_row,
    of_data,
    totals,
)
from assay.harness.selftest.mutant_rows import CASE, MODELS, PROGRAM, Row, model_rows, near_rows
from assay.harness.selftest.mutants import ROOT, Mutant, read
from assay.harness.selftest.record import Kill

MUTANTS = {mutant.name: mutant for mutant in read()}


@pytest.mark.parametrize("mutant", MUTANTS.values(), ids=MUTANTS.keys())
def test_locate_expects_each_bug_on_rungs_of_its_ladder(mutant: Mutant) -> None:
    known = {rung.name for backend in (mutant.backend, "assay") for rung in ladder_of(backend)}
    assert expected_rungs(mutant) and set(expected_rungs(mutant)) & known, mutant.file


def located(rung: str, seconds: float = 1.0, cpu_s: float = 1.0, calls: int | None = 2, failures: int = 3) -> Located:
    file = "compiler/passes/fold_constants.py"
    return Located("x", file, "a infer assay", rung, ("fold_constants",), seconds, cpu_s, calls, failures, 3)


def test_locate_counts_what_is_right() -> None:
    found = [
        located("fold_constants"),
        located("fused", 2 * LIMIT_S, 30.0, 11, 2),
        located("fold_constants", calls=None),
    ]
    told = totals(found)
    assert (told["mutants"], told["rung_right"], told["passes"], told["pass_right"]) == (3, 2, 3, 2)
    assert (told["small"], told["verified"]) == (1, 2)
    assert (told["in_time"], told["in_cpu_time"], told["longest_cpu_s"]) == (2, 3, 30.0)
    assert [each["is_small"] for each in as_data(found)] == [True, False, False]
    assert [of_data(each) for each in json.loads(json.dumps(as_data(found)))] == found


NEAR = ("zoo.bert", "programs", "semantics.slice_of_an_input_assigned")


@pytest.mark.parametrize(
    ("on_mutant", "unchanged", "row"),
    [
        ({"semantics.slice_of_an_input_assigned", "0"}, set(), "semantics.slice_of_an_input_assigned"),
        ({"semantics.slice_of_an_input_assigned", "3"}, {"semantics.slice_of_an_input_assigned"}, "3"),
        ({"zoo.bert", "8"}, set(), "8"),
        ({"8", "zoo.bert"}, {"8"}, "zoo.bert"),
        ({"8"}, {"8"}, None),
    ],
    ids=["a case first", "what fails without it accuses nobody", "a model last", "the next one", "none"],
)
def test_locate_takes_the_first_row_that_fails_by_the_bug_alone(
    on_mutant: set[str], unchanged: set[str], row: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    mutant = dataclasses.replace(MUTANTS["slice_scatter_past_its_end"], near=NEAR)

    def first_failed(tree: Path, rows: list[Row], timeout_s: float) -> Failed | None:
        is_changed = (tree / mutant.file).read_text() != (ROOT / mutant.file).read_text()
        failing = on_mutant if is_changed else unchanged
        found = [place for place, each in enumerate(rows) if each.name in failing]
        return Failed(found[0], Kill(rows[found[0]].name, "infer", "diverged")) if found else None

    monkeypatch.setattr(compiler_bank, "first_failed", first_failed)
    found = killing_row(mutant, near_rows(mutant.near, mutant.backend), CompilerMutants())
    assert (found and found.name) == row and (row != "8" or (found and found.what == PROGRAM))


@pytest.mark.parametrize(
    ("killed_by", "row"),
    [("ops.var.float32.forward[0 transposed]", "ops.var.float32.forward[0 transposed]"), ("a batch", None)],
    ids=["the sample of a batch", "none where a batch ended its process"],
)
def test_locate_takes_the_sample_where_no_case_fails(
    killed_by: str, row: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    mutant = MUTANTS["variance_by_count"]

    def first_failed(tree: Path, rows: list[Row], timeout_s: float) -> Failed | None:
        is_changed = (tree / mutant.file).read_text() != (ROOT / mutant.file).read_text()
        place = next(place for place, each in enumerate(rows) if each.mode == "infer")
        return Failed(place, Kill(killed_by, "infer", "diverged")) if is_changed else None

    monkeypatch.setattr(compiler_bank, "first_failed", first_failed)
    found = killing_row(mutant, near_rows(mutant.near, mutant.backend), CompilerMutants())
    assert (found and found.name) == row
    if found:
        (case,) = discover((found.origin,))
        assert found.what == CASE and case.name == found.name and found.mode in case.modes


def test_locate_says_that_not_all_near_rows_ran(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(locate_bank, "ROWS_S", 0.0)
    mutant = MUTANTS["variance_by_count"]
    with pytest.raises(OutOfTime, match=r"0 of \d+ near rows ran in 0 s"):
        killing_row(mutant, near_rows(mutant.near, mutant.backend), CompilerMutants())
    told = Located("y", "compiler/runtime/call.py", "", "", ("captured",), 1.0, 1.0, why="0 of 8 near rows ran")
    assert not told.is_final and dataclasses.replace(told, why=NOT_SHOWN).is_final


def test_locate_counts_apart_what_nothing_shows() -> None:
    nothing = Located("y", "compiler/runtime/call.py", "", "", ("captured",), 1.0, 1.0, why=NOT_SHOWN)
    told = totals([located("fold_constants"), nothing])
    assert (told["mutants"], told["rung_right"], told["not_shown"]) == (1, 1, 1)
    assert told_of(nothing) == f"y: {NOT_SHOWN}"


def test_locate_counts_the_cpu_time_of_a_child() -> None:
    before = children_cpu_s()
    child = Child("timeit", "-n", "1", "-r", "1", "sum(range(10**7))")
    assert child.wait(60) == 0
    assert 0.01 < children_cpu_s() - before < 60


def test_locate_in_models_takes_those_that_a_mutant_names_first() -> None:
    rows = model_rows(("programs", "zoo.segformer", "semantics.layout"), "assay")
    names = list(dict.fromkeys(row.name for row in rows))
    assert names == ["zoo.segformer", *MODELS] and {row.backend for row in rows} == {"assay"}
    assert {row.mode for row in rows} == {"infer", "train"}
    others = list(dict.fromkeys(row.name for row in model_rows(("zoo.vit",), "assay", start=len(MODELS) + 1)))
    assert others[:3] == ["zoo.vit", MODELS[1], MODELS[3]] and sorted(others) == sorted(MODELS)
