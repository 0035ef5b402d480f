"""Nothing is timed whose result is not eager's."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

import pytest
from torch import Tensor, fx

from assay.harness.discover import discover
from assay.harness.measure import python_instructions
from assay.harness.outcome import VERDICTS, Difference, Result
from assay.suites.benchmarks import decoding, growth
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


def test_growth_is_of_compiles_that_are_as_eager(monkeypatch: pytest.MonkeyPatch) -> None:
    found = growth.compiled("chain", growth.TINY, "assay")
    assert found["cpu_s"] > 0 and found["fuse"] > 0 and found["partition"] > 0
    monkeypatch.setattr(growth, "graph_compiler", lambda name: (lambda gm, inputs: lambda x: (x * 2,), False))
    with pytest.raises(NotSame, match="result is not eager's"):
        growth.compiled("chain", growth.TINY, "wrong")
    monkeypatch.setattr(growth, "graph_compiler", lambda name: (_detached, False))
    with pytest.raises(NotSame, match="gradient is not eager's"):
        growth.compiled("chain", growth.TINY, "wrong")


def _detached(gm: fx.GraphModule, inputs: Sequence[object]) -> Callable[[Tensor], tuple[Tensor, ...]]:
    """Right results, of which a part has no gradient."""
    return lambda x: tuple(y - x.exp().detach() + x.detach().exp() + x - x.detach() for y in gm(x))


def test_instructions_of_python_are_counted_the_same_each_time() -> None:
    def step() -> int:
        return sum(number * number for number in range(50))

    first, second = python_instructions(step), python_instructions(step)
    assert first == second > 100


def test_decoding_is_held_to_eager_before_it_is_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("transformers")
    monkeypatch.setitem(decoding.SIZES, "tiny", (1, 256))
    benchmark = decoding.Decode()
    benchmark.setup("tiny", "eager")
    benchmark.time_token("tiny", "eager")
    with pytest.raises(AssertionError, match="from eager's"):
        benchmark.setup("tiny", "tests.suites.benchmarks.test_benchmarks_proof:twice")


def twice(gm: fx.GraphModule, inputs: Sequence[object], options: object = None) -> Callable[..., tuple[object, ...]]:
    return lambda *args: tuple(y * 2 if isinstance(y, Tensor) else y for y in gm(*args))
