"""Rows of a process whose caches another one has filled: they say so, and tell apart who is wrong there alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from assay.harness.discover import discover
from assay.harness.outcome import Result
from assay.harness.processes.isolate import run_warm
from assay.harness.run import RunRequest

WRONG = "assay.harness.selftest.wrong_backends:spoils_warm_starts"
FILE = """
import torch
from assay.harness.case import case

@case(modes=("infer",))
def layer():
    return torch.nn.Linear(3, 2), (torch.randn(4, 3),), {}
"""


def run(folder: Path, backend: str) -> Result:
    (path := folder / "mine.py").write_text(FILE)
    (found,) = discover((str(path),))
    return run_warm(found, "infer", backend, RunRequest(timed=False), timeout_s=300.0)


def test_warm_row_of_the_compiler_says_what_was_restored(tmp_path: Path) -> None:
    result = run(tmp_path, "assay")
    assert (result.verdict, result.is_warm) == ("same", True), result.detail
    assert result.begun["restored"] > 0 and result.detail.startswith("warm start, ")


def test_warm_row_tells_apart_who_is_wrong_there_alone(tmp_path: Path) -> None:
    result = run(tmp_path, WRONG)
    assert (result.verdict, result.is_warm) == ("diverged", True), result.detail


@pytest.mark.parametrize("backend", ["assay.harness.selftest.wrong_backends:scales_results"])
def test_warm_row_is_the_first_one_where_that_does_not_pass(tmp_path: Path, backend: str) -> None:
    result = run(tmp_path, backend)
    assert (result.verdict, result.is_warm) == ("diverged", False) and "empty caches" in result.detail
