"""The bank of bugs of our own compiler: its tables, the checkouts they are put in, and what counts as a kill.

The whole bank is `assay selftest --compiler`, a nightly run.
"""

from __future__ import annotations

import math
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from assay.harness.discover import discover
from assay.harness.selftest import compiler_bank
from assay.harness.selftest.changed_tree import changed_tree
from assay.harness.selftest.compiler_bank import CONTROL, CompilerMutants, Failed, parts_of
from assay.harness.selftest.mutant_rows import CASE, SLICES, Row, near_rows, slice_rows
from assay.harness.selftest.mutants import KEYS, ROOT, Mutant, MutantError, read
from assay.harness.selftest.record import Asked, Kill, Member
from assay.harness.selftest.survivors import read as reasons
from tests.sources import is_under

AT_LEAST, KINDS = 60, 12
MUTANTS = read()
TABLE = """
[[mutant]]
name = "{name}"
file = "compiler/journal.py"
wrong = "It."
before = "{before}"
after = "{after}"
"""


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_mutants_apply_to_the_source_as_it_is(mutant: Mutant) -> None:
    assert mutant.file.startswith("compiler/")
    assert mutant.changed((ROOT / mutant.file).read_text())


def test_mutants_are_many_and_told() -> None:
    kinds = Counter(mutant.kind for mutant in MUTANTS)
    assert len(MUTANTS) >= AT_LEAST and len(kinds) >= KINDS, kinds
    said = [mutant.wrong for mutant in MUTANTS]
    assert len(said) == len(set(said)) and all(each.endswith(".") for each in said)
    assert all(mutant.near or mutant.tests for mutant in MUTANTS)


def test_mutants_name_what_exists() -> None:
    cases = {case.name for case in discover(("semantics",))}
    for mutant in MUTANTS:
        assert all((ROOT / name).is_file() for name in mutant.tests), mutant
        named = [name for name in mutant.near if is_under(name, "semantics")]
        assert all(name in cases or near_rows((name,), mutant.backend) for name in named), mutant


def test_mutants_survivors_are_of_the_bank() -> None:
    names = {mutant.name for mutant in MUTANTS}
    assert {name for bank, name in reasons() if bank == CompilerMutants.name} <= names


def mutant(**given: str) -> Mutant:
    known = {
        "kind": "k",
        "name": "n",
        "file": "compiler/journal.py",
        "wrong": "It.",
        "before": "x = 1",
        "after": "x = 2",
    }
    return Mutant(**{**known, **given})


@pytest.mark.parametrize(
    ("source", "after", "said"),
    [
        ("y = 1", "x = 2", "stands 0 times in compiler/journal.py"),
        ("x = 1; x = 1", "x = 2", "stands 2 times"),
        ("x = 1", "x = ", "is no Python any more"),
        ("x = 1", "x = 1  # one", "changes nothing but comments"),
    ],
)
def test_mutants_that_do_not_apply_say_so(source: str, after: str, said: str) -> None:
    with pytest.raises(MutantError, match=said):
        mutant(after=after).changed(source)


@pytest.mark.parametrize(
    ("tables", "said"),
    [
        ({}, "holds no mutants"),
        (
            {"a": TABLE.format(name="n", before="x", after="y"), "b": TABLE.format(name="n", before="x", after="y")},
            "two",
        ),
        ({"a": "[[mutant]]\nname = 'n'\n"}, "missing, unknown or of another type: after, before, file, wrong"),
        ({"a": TABLE.format(name="n", before="x", after="y") + "nearby = []"}, "of another type: nearby"),
    ],
)
def test_mutants_in_tables_that_cannot_be_read_say_so(tables: dict[str, str], said: str, tmp_path: Path) -> None:
    for name, text in tables.items():
        (tmp_path / f"{name}.toml").write_text(text)
    with pytest.raises(MutantError, match=said):
        read(tmp_path)


def test_mutants_have_the_keys_that_are_documented() -> None:
    text = (ROOT / "docs" / "selftest.md").read_text()
    assert all(f"`{key}`" in text for key in KEYS)


def test_changed_tree_changes_one_file_and_not_the_checkout() -> None:
    chosen = MUTANTS[0]
    before = (ROOT / chosen.file).read_text()
    with changed_tree(chosen) as tree:
        assert (tree / chosen.file).read_text() == chosen.changed(before)
        differing = [
            path
            for path in (tree / "compiler").rglob("*.py")
            if path.read_text() != (ROOT / path.relative_to(tree)).read_text()
        ]
        assert differing == [tree / chosen.file] and (tree / "suites" / "ledger.toml").is_file()
    assert (ROOT / chosen.file).read_text() == before and not tree.exists()


ROWS = [Row(CASE, "a", name, "infer", "assay") for name in ("a", "b", "c")]


def failing(on_mutant: list[str], unchanged: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets rows of these names fail, with a bug and without."""
    calls: list[str] = []

    def first_failed(tree: Path, rows: list[Row], timeout_s: float) -> Failed | None:
        names = on_mutant if len(rows) > 1 or not calls else unchanged
        calls.append(str(tree))
        found = [place for place, row in enumerate(rows) if row.name in names]
        return Failed(found[0], Kill(rows[found[0]].name, "infer", "diverged")) if found else None

    monkeypatch.setattr(compiler_bank, "first_failed", first_failed)


def test_mutant_is_killed_by_a_row_that_passes_without_it(monkeypatch: pytest.MonkeyPatch) -> None:
    failing(["b"], [], monkeypatch)
    assert CompilerMutants().killed(Path("x"), ROWS, math.inf) == (Kill("b", "infer", "diverged"), 2)


def test_mutant_is_not_killed_by_a_row_that_fails_without_it(monkeypatch: pytest.MonkeyPatch) -> None:
    failing(["a"], ["a"], monkeypatch)
    assert CompilerMutants().killed(Path("x"), ROWS, math.inf) == (None, 3)


@pytest.mark.parametrize("hangs", [False, True])
def test_time_that_is_up_kills_a_mutant_only_by_a_row_that_never_ends(
    hangs: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Time is up in row b. What survives has the most rows, and was killed by the row that happened to run then."""
    timeout = Kill("b", "infer", "timeout")
    limits: list[float] = []

    def first_failed(tree: Path, rows: list[Row], timeout_s: float) -> Failed | None:
        limits.append(timeout_s)
        if len(rows) > 1:
            time.sleep(timeout_s)
            return Failed(1, timeout)
        return Failed(0, timeout) if hangs and tree == Path("x") else None

    monkeypatch.setattr(compiler_bank, "first_failed", first_failed)
    found = CompilerMutants().killed(Path("x"), ROWS, time.monotonic() + 0.01)
    assert found == (timeout if hangs else None, 2)
    assert limits[0] <= 0.01 and set(limits[1:]) == {compiler_bank.ALONE_S}


def test_a_process_that_ends_before_its_first_row_fails_in_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def first_failed(tree: Path, rows: list[Row], timeout_s: float) -> Failed | None:
        if tree == Path("x"):
            raise compiler_bank.NothingRan("no row began", "crash")
        return None

    monkeypatch.setattr(compiler_bank, "first_failed", first_failed)
    kill, ended = CompilerMutants().killed(Path("x"), ROWS, math.inf)
    assert ended == 1 and kill is not None and kill.verdict == "crash"


def test_rows_are_tried_without_the_bug_beside_each_other_and_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many mutants at a time would else wait for one another."""
    both, asked = threading.Barrier(2, timeout=60), list[str]()

    def first_failed(tree: Path, rows: list[Row], timeout_s: float) -> Failed | None:
        asked.append(rows[0].name)
        both.wait()
        return None

    monkeypatch.setattr(compiler_bank, "first_failed", first_failed)
    bank = CompilerMutants()
    with ThreadPoolExecutor(2) as pool:
        passes = list(pool.map(lambda row: bank._passes_unchanged(row), ROWS[:2]))
    assert passes == [True, True] and sorted(asked) == ["a", "b"]
    assert bank._passes_unchanged(ROWS[0]) and len(asked) == 2


def test_mutants_are_tried_on_what_is_near_first() -> None:
    parts = [part for part, _ in parts_of(mutant(), "quick")]
    assert parts == ["near", "tests", "slice"] and [part for part, _ in parts_of(None, "quick")] == ["slice"]


def test_mutants_near_rows_end_with_symbolic_sizes() -> None:
    rows = near_rows(("semantics.empty_inputs", "semantics.layout"), "assay")
    dynamic = [row.backend == "assay,dynamic" for row in rows]
    assert dynamic == sorted(dynamic) and any(dynamic) and len(set(rows)) == len(rows)


def test_mutants_slices_grow_with_the_level(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("assay.harness.selftest.mutant_rows.units", tuple)  # listing them takes seconds
    monkeypatch.setattr("assay.harness.selftest.mutant_rows.has_models", lambda: False)
    sizes = [len(slice_rows(SLICES[level], "assay")) for level in SLICES]
    assert sizes == sorted(sizes) and sizes[0] > 50


def test_mutant_is_killed_in_a_process_of_its_own() -> None:
    bank = CompilerMutants()
    member = Member("gradients_left_off_are_forgotten", "capture", "It.")
    assert member.name in {each.name for each in bank.members()} and CONTROL in bank.members()
    tried = bank.tried(member, Asked((), (), level="quick", timeout_s=120.0))
    assert tried.killed and tried.by is not None and tried.passes, tried
    assert tried.by.case == "semantics.gradients_turned_off_and_left_off" and tried.by.part == "near", tried.by
