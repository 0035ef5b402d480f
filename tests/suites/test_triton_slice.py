"""Kernels of all CPU suites with no GPU: interpreted beside eager, and compiled for sm_90, where registers suffice.

Both processes run side by side, once; `suites/triton_slice.py` says which programs.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from assay.harness.backends.resources import UNALIGNED, USUAL, WIDE_INDEX, Record, record_of
from assay.suites.triton_slice import EVERY, has_models, programs

pytest.importorskip("triton")
NAMES = tuple(programs())
INTERPRETED, COMPILED = "assay-triton", "assay-sm90"
LIMIT_S = 600.0
LAST = 3000
"""Characters of what a process said that are shown where it ended early."""

Answers = dict[str, dict[str, Any]]


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Answers]:
    """What both processes say of each program, by backend and name."""
    folder = tmp_path_factory.mktemp("slice")
    began = {backend: start(backend, folder) for backend in (INTERPRETED, COMPILED)}
    for process in began.values():
        process.wait(LIMIT_S)
    return {backend: read(folder / backend) for backend in began}


def start(backend: str, folder: Path) -> subprocess.Popen[bytes]:
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    environment |= {"TRITON_INTERPRET": "1"} if backend == INTERPRETED else {}
    root = Path(__file__).parents[2]
    with (folder / backend).open("w") as output, (folder / f"{backend}.log").open("w") as log:
        command = [sys.executable, "-X", "faulthandler", "-m", "assay.suites.triton_slice", backend]
        paths = {"PYTHONPATH": os.pathsep.join([str(root), *filter(None, [os.environ.get("PYTHONPATH")])])}
        return subprocess.Popen(command, stdout=output, stderr=log, env=environment | paths, cwd=root)


def read(path: Path) -> Answers:
    found = {answer["program"]: answer for answer in map(json.loads, path.read_text().splitlines())}
    if len(found) < len(NAMES):
        log = path.with_name(f"{path.name}.log").read_text()
        pytest.fail(f"{path.name} ended after {len(found)} of {len(NAMES)} programs:\n{log[-LAST:]}", pytrace=False)
    return found


def records_of(answer: dict[str, Any]) -> list[Record]:
    return list(map(record_of, answer["kernels"]))


@pytest.mark.parametrize("name", NAMES)
def test_kernels_interpreted_are_eagers(name: str, answers: dict[str, Answers]) -> None:
    failures = answers[INTERPRETED][name]["failures"]
    assert not failures, f"TRITON_INTERPRET=1 python -m assay.suites.triton_slice {INTERPRETED}: {failures}"


@pytest.mark.parametrize("name", NAMES)
def test_kernels_compile_for_sm_90_and_do_not_spill(name: str, answers: dict[str, Answers]) -> None:
    answer = answers[COMPILED][name]
    assert not answer["failures"], f"python -m assay.suites.triton_slice {COMPILED}: {answer['failures']}"
    spilling = [record for record in records_of(answer) if record.is_short_of_registers]
    assert not spilling, spilling


def test_kernels_of_a_slice_are_compiled_in_every_variant(answers: dict[str, Answers]) -> None:
    found = {record.variant for name in NAMES for record in records_of(answers[COMPILED][name])}
    assert found == {USUAL, WIDE_INDEX, UNALIGNED}


def test_kernels_of_a_slice_are_of_every_suite(answers: dict[str, Answers]) -> None:
    found = {name.partition(".")[0] for name in NAMES if records_of(answers[COMPILED][name])}
    assert found == {*EVERY, "programs"} - (set() if has_models() else {"zoo"})
