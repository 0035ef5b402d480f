"""The rows' form, which needs none of their packages: names, packages, and what is said where one is missing."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

from assay.harness.case import Case
from assay.harness.discover import discover
from assay.harness.run import run_case
from assay.suites.libraries import row as rows
from assay.suites.libraries.row import MissingPackage, library

CASES = discover(["libraries"])
REQUIREMENTS = Path(__file__).parents[3] / "suites" / "libraries" / "requirements.txt"
PINNED = ("transformers", "sentence_transformers")
"""Packages that the zoo's constraints pin."""
OTHER_NAMES = {"torchcrf": "pytorch-crf", "open_clip": "open-clip-torch", "pyro": "pyro-ppl"}
"""Packages whose import name is not their own."""


def package_of(case: Case) -> str:
    return case.tags[0]


def test_libraries_hold_what_they_promise() -> None:
    packages = Counter(package_of(case) for case in CASES)
    assert len(CASES) >= 40 and len(packages) >= 25
    assert packages["transformers"] >= 20 and packages["pytorch_optimizer"] >= 10


def test_libraries_rows_are_named_after_their_packages() -> None:
    assert all(case.name.startswith(f"libraries.{package_of(case)}_") for case in CASES)
    assert all(case.sizes == ("tiny",) and case.modes for case in CASES)


def test_libraries_packages_are_pinned_once() -> None:
    lines = [line for line in REQUIREMENTS.read_text().splitlines() if not line.startswith("#")]
    assert all(re.fullmatch(r"[\w.-]+==[\w.]+", line) for line in lines)
    pinned = Counter(re.sub(r"[_.]", "-", line.partition("==")[0]).lower() for line in lines)
    assert set(pinned.values()) == {1} and not pinned.keys() & {"torch", "triton"}
    named = {OTHER_NAMES.get(package, package) for package in map(package_of, CASES) if package not in PINNED}
    assert {package.replace("_", "-") for package in named} <= pinned.keys()


def test_libraries_row_without_its_package_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "find_spec", lambda package: None)

    @library("a_package")
    def model() -> rows.Made:
        raise AssertionError("a row is not made without its package")

    with pytest.raises(MissingPackage, match="needs the package a_package"):
        model.make("tiny")
    result = run_case(model, "infer", "assay")
    assert result.verdict == "no-oracle" and "a_package" in result.detail
