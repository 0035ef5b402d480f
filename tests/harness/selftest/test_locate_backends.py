"""Which model a wrong backend is located in, and which faults a command means."""

from __future__ import annotations

from typing import Any

import click
import pytest

from assay.harness.selftest import locate_backends, locate_bank
from assay.harness.selftest.command import Faults, to_locate
from assay.harness.selftest.locate_backends import MODULE, locate_backend, models_for, wanted_backends
from assay.harness.selftest.locate_bank import NO_MODEL, NOT_DONE
from assay.harness.selftest.mutant_rows import MODELS
from assay.harness.selftest.wrong_backends import BANK

NAME = "scales_gradients"


def test_locate_tries_faults_on_several_models_first() -> None:
    assert all(sorted(models_for(name)) == sorted(MODELS) for name in BANK)
    assert {models_for(name)[0] for name in BANK} == set(MODELS)


def showing(shown: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:
    """What was asked for, where these models show the fault."""
    asked: list[tuple[str, ...]] = []

    def found(case: str, mode: str, backend: str, *rest: object) -> tuple[dict[str, Any], str]:
        asked.append((case, mode, backend))
        named = {"first": backend, "calls": 2, "failures": 3, "runs": 3}
        return (named, "") if case in shown else ({}, "")

    monkeypatch.setattr(locate_backends, "repro_found", found)
    return asked


def test_locate_takes_the_first_model_that_shows_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second, third, *_ = models_for(NAME)
    asked = showing((second, third), monkeypatch)
    found = locate_backend(NAME)
    assert asked == [(model, "train", f"{MODULE}:{NAME}") for model in (first, second)]
    assert found.row == f"{second} train" and found.file == "harness/selftest/wrong_backends/gradients.py"
    assert found.is_shown and found.is_rung_right and found.is_small and found.is_verified


def test_locate_counts_apart_what_no_model_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    assert len(showing((), monkeypatch)) == 0
    found = locate_backend(NAME)
    assert (found.is_shown, found.is_final, found.why) == (False, True, NO_MODEL)


def test_locate_takes_a_model_whose_time_was_up_for_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another model is tried, and where none shows the fault, `--resume` tries it again."""
    first, second, *_ = models_for(NAME)
    shown = {second: ({"first": f"{MODULE}:{NAME}", "calls": 2, "failures": 3, "runs": 3}, "")}

    def found(case: str, *rest: object) -> tuple[dict[str, Any], str]:
        return shown.get(case, ({}, f"{NOT_DONE} 600 s" * (case == first)))

    monkeypatch.setattr(locate_backends, "repro_found", found)
    assert locate_backend(NAME).row == f"{second} train"
    shown.clear()
    cut = locate_backend(NAME)
    assert (cut.is_shown, cut.is_final, cut.why) == (False, False, f"{first}: {NOT_DONE} 600 s")


def test_locate_means_the_bank_that_is_asked_for() -> None:
    def named(*banks: str, text: str = "") -> set[str]:
        return set(to_locate(Faults(banks, True, 1, text, False, False, False)))

    assert named("backends") == set(BANK) and named("backends", text=NAME) == {NAME}
    assert len(wanted_backends("gradients", every=2)) == (len(wanted_backends("gradients")) + 1) // 2
    assert named() == named("compiler") == {mutant.name for mutant in locate_bank.wanted("")}
    with pytest.raises(click.UsageError, match="give one of them"):
        named("backends", "compiler")
