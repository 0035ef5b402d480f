"""Nothing is timed whose result is not eager's."""

from __future__ import annotations

import os

import pytest

from assay.harness.discover import discover
from assay.harness.outcome import VERDICTS, Difference, Result
from assay.suites.benchmarks.models import MODELS
from assay.suites.benchmarks.subject import NotSame, Subject, empty_caches, require_same

SUBJECT = Subject("overhead.tiny_function", "infer", "eager")


def found(verdict: str) -> dict[Subject, Result]:
    differences = () if verdict == "same" else (Difference("stride", "output", "(1,) where eager has (2,)"),)
    return {SUBJECT: Result(SUBJECT.case, SUBJECT.mode, SUBJECT.backend, verdict, differences, detail="a detail")}


@pytest.mark.parametrize("verdict", VERDICTS)
def test_benchmarks_fail_unless_the_verdict_is_same(verdict: str) -> None:
    if verdict == "same":
        require_same(found(verdict), SUBJECT)
    else:
        with pytest.raises(NotSame, match=f"{verdict} stride a detail"):
            require_same(found(verdict), SUBJECT)


def test_benchmarks_find_eager_to_be_itself_and_run_its_step() -> None:
    require_same({SUBJECT: SUBJECT.result()}, SUBJECT)
    assert SUBJECT.step()() is not None


def test_benchmarks_measure_models_that_are_in_the_zoo_without_dropout() -> None:
    from_zoo = {case.name: case for case in discover(MODELS)}
    assert set(from_zoo) == set(MODELS)
    assert not [name for name, case in from_zoo.items() if "dropout" in case.tags]


def test_benchmarks_compile_into_empty_caches_and_put_the_old_ones_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ASSAY_CACHE", "before")
    monkeypatch.delenv("TRITON_CACHE_DIR", raising=False)
    with empty_caches():
        folder = os.environ["ASSAY_CACHE"]
        assert folder != "before" and "TRITON_CACHE_DIR" in os.environ
    assert os.environ["ASSAY_CACHE"] == "before" and "TRITON_CACHE_DIR" not in os.environ
    assert not os.path.exists(os.path.dirname(folder))
