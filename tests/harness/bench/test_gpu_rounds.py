"""Steps of a GPU are timed in turns, each from an empty cache, with the clocks noted: on a GPU that is played."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from assay.harness.bench.gpu_rounds import GpuRounds, in_rounds, read_clocks


class Played:
    """A GPU on which a step takes 1 ms of an empty cache, a tenth of that of a warm one, and more each time."""

    def __init__(self, slower: float = 1.0, clocks: list[tuple[int, int] | None] | None = None) -> None:
        self.log: list[str] = []
        self.slower, self.clocks, self.rate, self.is_warm = slower, clocks or [], 1.0, False

    def flush(self) -> None:
        self.is_warm = False

    def timed_ms(self, step: Callable[[], object]) -> float:
        step()
        taken = (0.1 if self.is_warm else 1.0) * self.rate
        self.is_warm, self.rate = True, self.rate * self.slower
        return taken

    def clocks_mhz(self) -> tuple[int, int] | None:
        return self.clocks.pop(0) if self.clocks else None

    def step(self, name: str) -> Callable[[], object]:
        return lambda: self.log.append(name)


def test_every_step_starts_from_an_empty_cache() -> None:
    gpu = Played()
    found = in_rounds({name: gpu.step(name) for name in "ab"}, 4, gpu)
    assert found.times_ms == {"a": [1.0] * 4, "b": [1.0] * 4} and found.median_ms("a") == 1.0


def test_who_goes_first_moves_on_so_that_drift_meets_all_alike() -> None:
    gpu = Played(slower=1.01)
    found = in_rounds({name: gpu.step(name) for name in "abc"}, 3, gpu)
    assert "".join(gpu.log) == "abcbcacab"
    assert max(map(sum, found.times_ms.values())) / min(map(sum, found.times_ms.values())) < 1.001


def test_clocks_are_noted_and_must_not_move() -> None:
    gpu = Played(clocks=[(1980, 3201), (1965, 3201)])
    found = in_rounds({"a": gpu.step("a")}, 2, gpu)
    assert found.clocks_mhz == [(1980, 3201), (1965, 3201)] and found.is_steady
    assert not GpuRounds({}, [(1980, 3201), (1200, 3201)]).is_steady
    assert GpuRounds({}).is_steady


@pytest.mark.parametrize(
    ("said", "clocks"), [("1980, 3201\n", (1980, 3201)), ("", None), ("[N/A], [N/A]\n", None), ("no devices", None)]
)
def test_clocks_are_read_of_what_is_said(said: str, clocks: tuple[int, int] | None) -> None:
    assert read_clocks(said) == clocks


@pytest.mark.gpu
def test_a_gpus_events_time_a_longer_step_longer() -> None:
    import torch

    from assay.harness.bench.gpu_rounds import Cuda

    small, large = (torch.ones(1 << power, device="cuda") for power in (20, 28))
    steps = {"small": lambda: small.mul_(1), "large": lambda: large.mul_(1)}
    found = in_rounds(steps, 5, Cuda())
    assert found.median_ms("large") > 10 * found.median_ms("small") > 0
