"""The first bad commit of a history is found, also where revisions cannot be tried; the real checkout is left alone."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from assay.harness.cli import locate_commands
from assay.harness.locate.commits import (
    BAD,
    GOOD,
    UNTRIED,
    Asked,
    HistoryError,
    by_number,
    by_verdict,
    case_in,
    checkout,
    first_bad,
    history,
)

COMMITS = [f"c{number:02d}" for number in range(20)]


def test_commits_are_halved() -> None:
    found = first_bad(COMMITS, lambda commit: GOOD if commit < "c13" else BAD)
    assert (found.bad, found.good, found.between) == ("c13", "c12", ()) and len(found.tried) <= 7


def test_commits_that_do_not_build_are_skipped() -> None:
    def attempt(commit: str) -> str:
        return UNTRIED if commit in ("c09", "c10", "c12") else GOOD if commit < "c12" else BAD

    found = first_bad(COMMITS, attempt)
    assert (found.bad, found.good, found.between) == ("c13", "c11", ("c12",))
    assert "1 commits between them could not be tried" in found.sentence()


def test_commits_without_a_border_are_refused() -> None:
    with pytest.raises(HistoryError, match="no border"):
        first_bad(COMMITS, lambda commit: BAD)


def test_commits_that_got_slower_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def row(tree: Path, *case: str) -> dict[str, float]:
        return {"ms": 1.08 if tree.name >= "c11" else 1.0, "eager_ms": 1.0}

    monkeypatch.setattr("assay.harness.locate.commits._row", row)
    attempt = by_number(Path, Asked("case", "infer", "assay", 3), "call", (COMMITS[0], COMMITS[-1]))
    assert first_bad(COMMITS, attempt).bad == "c11"
    with pytest.raises(HistoryError, match="not slower by 3%"):
        by_number(Path, Asked("case", "infer", "assay", 3), "call", (COMMITS[0], COMMITS[5]))


def test_checkout_stands_at_each_commit(tmp_path: Path) -> None:
    def git(*arguments: str) -> str:
        name = ("-c", "user.name=a", "-c", "user.email=a@b")
        return subprocess.run(
            ["git", "-C", str(tmp_path), *name, *arguments], check=True, capture_output=True, text=True
        ).stdout

    git("init", "-q")
    for number in range(4):
        (tmp_path / "value.txt").write_text(str(number))
        git("add", "-A")
        git("commit", "-qm", f"value {number}")
    commits = history(tmp_path, "HEAD~3", "HEAD")
    with checkout(tmp_path) as at:
        found = first_bad(commits, lambda commit: GOOD if int((at(commit) / "value.txt").read_text()) < 2 else BAD)
    assert found.bad == commits[2] and (tmp_path / "value.txt").read_text() == "3"
    with pytest.raises(HistoryError):
        history(tmp_path, "nothing", "HEAD")


def test_the_history_is_that_of_the_checkout_by_default() -> None:
    """`git clone` takes the root of a repository, and no folder in it."""
    assert (locate_commands.ROOT / "pyproject.toml").is_file() and (locate_commands.ROOT / ".git").exists()


BACKEND = """
import torch


def mine(gm, example_inputs):
    return lambda *args: tuple(y * {factor} for y in gm.forward(*args))
"""
CASES_OF_A_USER = """
import torch
from assay import case


@case(modes=("infer",))
def sine():
    return torch.sin, (torch.ones(3),), {}
"""


def test_commits_of_a_users_backend_are_run_by_this_assay(tmp_path: Path) -> None:
    told: list[str] = []
    texts = {"good": BACKEND.format(factor=1.0), "untried": "import nothing_there\n", "bad": BACKEND.format(factor=1.1)}
    for name, text in texts.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "users_backend.py").write_text(text)
    (tmp_path / "cases.py").write_text(CASES_OF_A_USER)
    asked = Asked(f"{tmp_path}/cases.py::sine", "infer", "users_backend:mine", 1)
    attempt = by_verdict(lambda commit: tmp_path / commit, asked, told.append)
    assert [attempt(name) for name in texts] == [GOOD, UNTRIED, BAD]
    assert len(told) == 1 and "nothing_there" in told[0]


def test_commits_have_the_case_of_their_time(tmp_path: Path) -> None:
    (tmp_path / "cases.py").touch()
    assert case_in(tmp_path, "cases.py::sine") == f"{tmp_path}/cases.py::sine"
    assert (
        case_in(tmp_path, "zoo.bert") == "zoo.bert" and case_in(tmp_path, "a.py::b") == f"{Path('a.py').resolve()}::b"
    )
