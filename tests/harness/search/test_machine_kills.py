"""The state machine finds backends that are wrong in one way each, within a few runs, and shows how in a script."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from assay.harness.backends.registry import resolve
from assay.harness.search.drive import CHUNK, Drive, Plan, quietly, stored
from assay.harness.search.script import Failure, failure_from, reduced
from assay.harness.search.twin import Diverged, Twin
from assay.suites.programs import machine
from tests.sources import ROOT

BOUND = 40
"""Runs of 12 steps, of the callables that the mistake can show in, within which it must be found."""

WRONG = {
    "drops_a_write": ("add_into_first,Counter", {"values"}),
    "hands_out_one_buffer_twice": ("matrices,own_function", {"values", "alias", "error", "gradient"}),
    "keeps_a_stale_overlap": ("write_both,swap", {"values", "alias", "version", "error"}),
    "turns_none_into_zero": ("apart", {"gradient", "structure"}),
    "reuses_its_seed": ("noisy", {"values"}),
    "copies_its_views": ("chunks,views_of_inputs", {"view", "alias", "stride", "offset"}),
    "loses_its_graph": ("Tied,mixed", {"requires_grad"}),
    "keeps_the_first_parameters": ("Tied", {"values", "gradient", "error"}),
    "compiles_every_call": ("Norms,noisy", {"compiles"}),
}


def failure_of(backend: str, subjects: str) -> Failure | None:
    """The first failure within the bound."""
    found: list[Failure] = []

    def failed(twin: Twin, diverged: Diverged) -> None:
        found.append(failure_from(twin, diverged))

    for seed in range(BOUND // CHUNK):
        plan = Plan(backend, seed=seed, runs=CHUNK, steps=12, subjects=subjects)
        machine.search(resolve(backend), plan, failed, ignore)
        if found:
            return found[0]
    return None


def ignore(twin: Twin, rules: Counter[str]) -> None:
    """Nothing is counted here."""


@pytest.mark.parametrize("name", WRONG)
def test_machine_kills_a_wrong_backend(name: str) -> None:
    subjects, fields = WRONG[name]
    failure = failure_of(f"tests.wrong_backends:{name}", subjects)
    assert failure is not None, f"{name} lived through {BOUND} runs of {subjects}"
    assert failure.differences[0].field in fields, (failure.steps, failure.differences)


def test_machine_lets_the_right_backend_live(tmp_path: Path) -> None:
    plan = Plan("tests.wrong_backends:right", runs=8, steps=10, store=str(tmp_path))
    drive = Drive(plan)
    quietly([drive])
    tally = drive.tally
    assert not tally.failures, tally.failures
    assert tally.runs >= 8 and tally.compiles > 8


def test_machine_failure_is_a_script_that_shows_the_difference(tmp_path: Path) -> None:
    name = "tests.wrong_backends:drops_a_write"
    failure = failure_of(name, "add_into_first")
    assert failure is not None
    short = reduced(failure, resolve(name), 40)
    assert len(short.steps) == 3, short.steps  # making the callable, the arguments, the call
    path = stored(short, Plan(name, store=str(tmp_path)))
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    ran = subprocess.run([sys.executable, path], capture_output=True, text=True, env=environment, check=False)
    assert ran.returncode == 1 and "differ" in ran.stdout, ran.stderr
    imported = [line for line in path.read_text().splitlines() if line.startswith(("import", "from"))]
    assert not any(word in line for line in imported for word in ("harness", "suites", "compiler"))


def test_machine_resolves_wrong_backends_by_name() -> None:
    assert resolve("tests.wrong_backends:right").name == "tests.wrong_backends:right"
