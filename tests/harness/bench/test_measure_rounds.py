"""`assay.harness.measure`: rounds, ratios and their spread, cold compile time, peak memory."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable

import pytest
import torch

from assay.harness import measure
from assay.harness.measure import Rounds, Sampling


class Clock:
    """A clock that only `spend` moves, so that no test depends on how busy the machine is."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def perf_counter(self) -> float:
        return self.now_s

    def spend(self, seconds: float) -> Callable[[], None]:
        def step() -> None:
            self.now_s += seconds

        return step


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(measure, "time", made)
    return made


def test_rounds_ratio_is_theirs_over_ours() -> None:
    rounds = Rounds(ours=(1.0, 2.0, 3.0), theirs=(2.0, 4.0, 12.0))
    assert (rounds.ours_ms, rounds.theirs_ms, rounds.ratio) == (2.0, 4.0, 2.0)


def test_rounds_spread_is_of_single_rounds_and_holds_half_of_them() -> None:
    rounds = Rounds(ours=(1.0,) * 5, theirs=(1.0, 2.0, 3.0, 4.0, 100.0))
    assert rounds.spread == (2.0, 4.0)
    assert Rounds((2.0,), (3.0,)).spread == (1.5, 1.5)


def test_geometric_mean_of_a_ratio_and_its_inverse_is_one() -> None:
    assert measure.geometric_mean([4.0, 0.25, None]) == pytest.approx(1.0)
    assert measure.geometric_mean([None]) is None
    assert measure.geometric_mean([]) is None


@pytest.mark.parametrize(("theirs", "ours"), [(None, 1.0), (1.0, None), (0.0, 1.0), (1.0, 0.0)])
def test_ratio_of_an_unknown_is_unknown(theirs: float | None, ours: float | None) -> None:
    assert measure.ratio(theirs, ours) is None


@pytest.mark.parametrize(("call_s", "calls"), [(1e-5, 12), (0.05, 12), (0.3, 4), (2.0, 1)])
def test_warm_up_ends_after_so_many_calls_or_so_long(clock: Clock, call_s: float, calls: int) -> None:
    measure.warm_up(clock.spend(call_s))
    assert round(clock.now_s / call_s) == calls


@pytest.mark.parametrize("call_s", [1e-5, 1e-4, 3e-3, 0.05])
def test_calibrate_fills_the_batch_and_the_sample(clock: Clock, call_s: float) -> None:
    sampling = measure.calibrate(clock.spend(call_s))
    assert max(measure.BATCH_S, call_s) <= sampling.calls * call_s * 1.0001
    assert measure.SAMPLE_S <= sampling.batches * sampling.calls * call_s * 1.0001
    assert sampling.batches * sampling.calls * call_s < 2 * max(measure.SAMPLE_S, call_s)


def test_calibrate_makes_one_batch_of_a_gpu_sample(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure, "synchronize", lambda device: None)
    assert measure.calibrate(clock.spend(1e-3), "cuda").batches == 1


def test_calibrate_ends_where_the_clock_is_too_coarse_to_see_one_call(clock: Clock) -> None:
    sampling = measure.calibrate(clock.spend(1e-9), sample_s=1e-4)
    assert sampling.calls * sampling.batches * 1e-9 >= 1e-4 * 0.999


def test_a_sample_is_the_median_batch_so_that_a_lost_slice_does_not_show(clock: Clock) -> None:
    calls = iter(range(1000))

    def step() -> None:
        clock.now_s += 0.5 if next(calls) == 3 else 1e-4

    assert measure.sample_ms(step, Sampling(calls=10, batches=5)) == pytest.approx(0.1)


def test_alternate_measures_both_and_swaps_who_is_first(clock: Clock) -> None:
    order: list[str] = []

    def stepper(name: str, seconds: float) -> Callable[[], None]:
        def step() -> None:
            order.append(name)
            clock.now_s += seconds

        return step

    rounds = measure.alternate(stepper("ours", 0.002), stepper("theirs", 0.006), rounds=4, sample_s=0.001)
    assert order[-8:] == ["ours", "theirs", "theirs", "ours"] * 2
    assert rounds.ours == pytest.approx((2.0,) * 4)
    assert rounds.theirs == pytest.approx((6.0,) * 4)
    assert rounds.ratio == pytest.approx(3.0)


def test_a_batch_is_a_mean_over_its_calls(clock: Clock) -> None:
    assert measure.batch_ms(clock.spend(0.002), calls=10) == pytest.approx(2.0)
    assert measure.median_ms(clock.spend(0.004), rounds=3, sample_s=0.02) == pytest.approx(4.0)


def test_sample_leaves_the_garbage_collector_as_it_was_even_when_the_step_raises() -> None:
    def fails() -> None:
        assert not gc.isenabled()
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        measure.sample_ms(fails, Sampling(1, 1))
    assert gc.isenabled()


def test_cold_compile_is_total_less_dynamo(clock: Clock) -> None:
    made: list[object] = []

    def make_step(backend: object) -> Callable[[], None]:
        made.append(backend)
        return clock.spend(0.03 if backend == "slow" else 0.01)

    cold = measure.cold_compile(make_step, "slow")
    assert made == ["eager", "eager", "slow"]
    assert cold.compile_s == pytest.approx(0.02)
    assert (cold.total_s, cold.dynamo_s) == pytest.approx((0.03, 0.01))


def test_cold_compile_is_never_negative() -> None:
    assert measure.ColdCompile(total_s=1.0, dynamo_s=1.5).compile_s == 0.0


def test_cold_compile_of_a_slow_backend_is_its_own_time() -> None:
    def slow_backend(graph: torch.fx.GraphModule, inputs: list[torch.Tensor]) -> Callable[..., object]:
        time.sleep(0.2)
        return graph.forward

    def make_step(backend: str | Callable[..., object]) -> Callable[[], object]:
        compiled = torch.compile(lambda x: x.sin() + 1, backend=backend)
        x = torch.ones(3)
        return lambda: compiled(x)

    cold = measure.cold_compile(make_step, slow_backend)
    assert cold.compile_s > 0.15


def test_peak_sees_a_temporary_and_not_what_was_there() -> None:
    resting = torch.ones(8 << 20)
    peak = measure.peak_bytes(lambda: (resting[: 4 << 20] * 2).sum())
    assert peak is not None
    assert 12 << 20 < peak < 28 << 20


def test_a_peak_on_a_gpu_counts_what_recordings_hold_between_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 70 bytes at rest 30 lie in a recording's memory of 50, which is taken for good; a step makes 5 more, and what
    cuBLAS works in is no memory at rest."""
    calls = list[str]()

    def allocated() -> int:
        calls.append("at rest")
        return 70

    segments = [{"segment_pool_id": (0, 0), "total_size": 64}, {"segment_pool_id": (1, 0), "total_size": 50}]
    for name, value in {"memory_snapshot": segments, "max_memory_allocated": 75}.items():
        monkeypatch.setattr(torch.cuda, name, lambda value=value: value)
    for name in ("synchronize", "reset_peak_memory_stats"):
        monkeypatch.setattr(torch.cuda, name, lambda: None)
    monkeypatch.setattr(torch.cuda, "memory_allocated", allocated)
    clear = "_cuda_clearCublasWorkspaces"  # which a torch without CUDA has none of
    monkeypatch.setattr(torch._C, clear, lambda: calls.append("cleared"), raising=False)
    assert measure.peak_bytes(lambda: None, "cuda") == 75 - 70 + 50
    assert calls == ["cleared", "at rest"]


def test_memory_ratio_is_of_peaks_above_the_floor() -> None:
    mega = 1 << 20
    assert measure.memory_ratio(30 * mega, 10 * mega) == 3.0
    assert measure.memory_ratio(10 * mega, 0) == 10.0
    assert measure.memory_ratio(mega // 2, mega // 4) is None
    assert measure.memory_ratio(None, mega) is None


def test_first_call_takes_as_long_as_the_call(clock: Clock) -> None:
    assert measure.first_call_s(clock.spend(0.02)) == pytest.approx(0.02)
