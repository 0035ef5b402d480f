"""The rule that decides about numbers: what it must let through, what it must catch, and what it says."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from torch import Tensor

from assay.harness.judge import tolerance
from assay.harness.judge.tolerance import DIFFERS, EXCUSED, UNANCHORED, UNSTABLE, Evidence, explain


def kind(ours: Tensor, eager: Tensor, evidence: Evidence) -> str:
    """What is found: `same`, or the kind of the finding."""
    found = explain(ours, eager, evidence)
    return "same" if found is None else found.kind


def text(ours: Tensor, eager: Tensor, evidence: Evidence, device: torch.device | None = None) -> str:
    found = explain(ours, eager, evidence, device)
    return "" if found is None else found.text


def around(truth: Tensor, ulps: float, seed: int = 0) -> Tensor:
    """Numbers within so many float32 ulps of the truth."""
    generator = torch.Generator().manual_seed(seed)
    noise = 2 * torch.rand(truth.shape, generator=generator, dtype=torch.float64) - 1
    return (truth * (1 + noise * ulps * torch.finfo(torch.float32).eps)).float()


@pytest.fixture
def truth() -> Tensor:
    return torch.randn(1000, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


def test_tolerance_takes_another_rounding_of_the_same_size(truth: Tensor) -> None:
    assert explain(around(truth, 50, 1), around(truth, 50, 2), Evidence(truth)) is None


def test_tolerance_refuses_ten_times_the_error(truth: Tensor) -> None:
    assert explain(around(truth, 5000, 1), around(truth, 50, 2), Evidence(truth)) is not None


def test_tolerance_finds_one_element_and_says_which(truth: Tensor) -> None:
    eager, ours = around(truth, 2), around(truth, 2)
    ours[137] += 1e-4
    told = text(ours, eager, Evidence(truth))
    assert "1 of 1000" in told and "[137]" in told and "anchored on float64" in told


def test_tolerance_takes_what_float32_leaves_of_halves_that_cancel() -> None:
    """Eager's roundings cancel: its error is 0, as is the number itself, so that no reach holds a run in float32."""
    truth = torch.zeros(3, dtype=torch.float64)
    eager, rest = truth.bfloat16(), torch.tensor([2e-8, -1e-8, 0.0])
    evidence = Evidence(truth, samples=lambda: [eager], between=lambda: [rest])
    assert explain(rest.bfloat16(), eager, Evidence(truth, samples=lambda: [rest])) is not None
    assert explain(rest.bfloat16(), eager, evidence) is None
    assert explain((100 * rest).bfloat16(), eager, evidence) is not None


def test_tolerance_keeps_large_numbers_from_excusing_small_ones() -> None:
    truth = torch.tensor([1e8] + [1e-3] * 99, dtype=torch.float64)
    eager, ours = around(truth, 2), around(truth, 2)
    ours[50] *= 1.01
    assert abs(float(ours[50] - eager[50])) < 4 * float((eager.double() - truth).abs().max())
    assert explain(ours, eager, Evidence(truth)) is not None


def test_tolerance_asks_for_samples_before_it_refuses() -> None:
    """Eager is right by luck on one number: its other runs show the size of its error."""
    truth = torch.tensor([1.0], dtype=torch.float64)
    ours, eager = torch.tensor([1.0 + 2e-5]), torch.tensor([1.0])
    spread = [torch.tensor([1.0 + error]) for error in (1e-5, -8e-6, 3e-6, 2e-6)]
    assert explain(ours, eager, Evidence(truth)) is not None
    assert explain(ours, eager, Evidence(truth, samples=lambda: spread)) is None
    assert explain(ours + 1e-3, eager, Evidence(truth, samples=lambda: spread)) is not None


def test_tolerance_asks_for_more_samples_of_the_kind_that_is_the_same_computation() -> None:
    """Eager's neighbours are far off, but those where equal numbers stay equal, of which the last ones show enough."""
    truth = torch.tensor([1.0], dtype=torch.float64)
    ours, eager = torch.tensor([1.0 + 2e-5]), torch.tensor([1.0])
    far = [torch.tensor([1.1]), torch.tensor([0.9])]
    kept, more = ([torch.tensor([1.0 + error])] for error in (2e-6, 1e-5))
    evidence = Evidence(truth, few=lambda: far, samples=lambda: far, more=lambda: far, kept=lambda: kept)
    assert explain(ours, eager, evidence) is not None
    evidence = dataclasses.replace(evidence, more_kept=lambda: more)
    assert explain(ours, eager, evidence) is None
    assert explain(ours + 1e-3, eager, evidence) is not None


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.complex64, torch.float64])
def test_tolerance_takes_equal_bits_with_anything_in_them(dtype: torch.dtype) -> None:
    numbers = torch.tensor([0.0, -0.0, 1.5, float("inf"), -float("inf"), float("nan")]).to(dtype)
    assert explain(numbers.clone(), numbers, Evidence()) is None


@pytest.mark.parametrize(
    ("eager", "ours"),
    [
        (float("nan"), 1.0),
        (1.0, float("nan")),
        (float("inf"), -float("inf")),
        (1.0, float("inf")),
        (float("inf"), 3e38),
    ],
)
def test_tolerance_refuses_non_finite_numbers_elsewhere(eager: float, ours: float) -> None:
    told = text(torch.tensor([2.0, ours]), torch.tensor([2.0, eager]), Evidence())
    assert "[1]" in told and "stand where eager's stand" in told


def test_tolerance_refuses_a_flipped_sign_of_zero_where_float64_agrees() -> None:
    eager, ours = torch.tensor([0.0, -0.0, 1.0]), torch.tensor([-0.0, -0.0, 1.0])
    assert "sign of zero" in text(ours, eager, Evidence())
    assert "sign of zero" in text(ours, eager, Evidence(eager.double()))
    assert explain(ours, eager, Evidence(ours.double())) is None


def test_tolerance_refuses_any_other_integer() -> None:
    told = text(torch.tensor([1, 2, 4]), torch.tensor([1, 2, 3]), Evidence())
    assert "[2]" in told and "exact" in told
    assert explain(torch.tensor([True]), torch.tensor([False]), Evidence()) is not None


POSITIONS = torch.tensor([4, 7, 1])
OTHER = torch.tensor([4, 6, 1])


def test_tolerance_takes_the_position_that_float64_gives() -> None:
    """Where eager's own rounding decided which of two is the greatest."""
    assert kind(OTHER, POSITIONS, Evidence(truth=OTHER)) == EXCUSED
    assert kind(OTHER, POSITIONS, Evidence(truth=POSITIONS)) == DIFFERS
    assert kind(torch.tensor([3, 6, 1]), POSITIONS, Evidence(truth=OTHER)) == DIFFERS


def test_tolerance_excuses_one_position_in_a_hundred() -> None:
    eager = torch.arange(1000)
    sides = Evidence(truth=eager, kinks=lambda: [eager + 1, eager - 1])
    for count, expected in ((10, EXCUSED), (11, UNSTABLE)):
        ours = eager.clone()
        ours[:count] += 1
        assert kind(ours, eager, sides) == expected
    assert kind(eager + 1, eager, sides) == EXCUSED, "all of one run"


def test_tolerance_takes_0d_and_empty_tensors() -> None:
    assert explain(torch.tensor(1.0), torch.tensor(1.0), Evidence(torch.tensor(1.0).double())) is None
    assert explain(torch.tensor(2.0), torch.tensor(1.0), Evidence(torch.tensor(1.0).double())) is not None
    assert explain(torch.empty(0, 3), torch.empty(0, 3), Evidence(torch.empty(0, 3).double())) is None


def test_tolerance_judges_what_is_large_in_pieces(monkeypatch: pytest.MonkeyPatch, truth: Tensor) -> None:
    monkeypatch.setattr(tolerance, "PIECE", 64)
    shaped = truth.view(50, 20)
    eager, ours = around(shaped, 50, 2), around(shaped, 50, 1)
    assert explain(ours, eager, Evidence(shaped)) is None
    ours[40, 7] *= 1.0003
    assert "of elements 768 to 831: 1 of 64 elements; the worst at [39]" in text(ours, eager, Evidence(shaped))
    spread = Evidence(shaped, samples=lambda: [ours, eager[:3]])
    assert explain(ours, eager, spread) is None
    assert tolerance.largest(ours) == ours.abs().max()


def test_tolerance_refuses_an_element_that_only_eager_missed(truth: Tensor) -> None:
    """One element of eager's is off by a step: that excuses neither it nor another in ours."""
    eager = around(truth, 2)
    eager[3] += 1.0
    assert kind(around(truth, 2, 1), eager, Evidence(truth)) == UNSTABLE
    assert kind(eager + 0.1, eager, Evidence(truth)) == DIFFERS
    far = around(truth, 2, 1)
    far[(truth.abs() - truth[3].abs()).abs().argmax()] += 1.0
    assert kind(far, eager, Evidence(truth)) == DIFFERS


def test_tolerance_keeps_the_anchor_of_numbers_that_are_only_rounding() -> None:
    """A gradient that is zero in exact arithmetic."""
    truth = torch.full((64,), 1e-17, dtype=torch.float64)
    eager, ours = (1e-8 * torch.randn(64, generator=torch.Generator().manual_seed(seed)) for seed in (0, 1))
    assert kind(ours, eager, Evidence(truth)) == "same"
    assert kind(ours + 1e-6, eager, Evidence(truth)) == DIFFERS


def test_tolerance_takes_small_rests_of_what_cancelled_by_what_neighbours_leave() -> None:
    truth = torch.full((8,), 1e-17, dtype=torch.float64)
    eager, ours = torch.tensor([0.0, 1e-6] * 4), torch.tensor([3e-6, 0.0] * 4)
    near = Evidence(truth, samples=lambda: [torch.tensor([1e-6, 0.0] * 4)])
    assert kind(ours, eager, Evidence(truth)) == "same", "half of the elements show it already"
    assert kind(ours, eager, near) == "same"
    assert kind(ours * 10, eager, Evidence(truth)) == kind(ours * 10, eager, near) == DIFFERS


def test_tolerance_takes_zeros_of_a_small_tensor_alike() -> None:
    """Each is nothing but rounding, which falls on other elements in another order; a number beside them is no zero."""
    truth = torch.tensor([0.0, 0.0, 0.0, 1.0, 1e-3], dtype=torch.float64)
    eager = torch.tensor([0.0, 1e-7, 0.0, 1.0, 1e-3])
    ours = eager.clone()
    ours[0], ours[1] = 3e-7, 0.0
    assert kind(ours, eager, Evidence(truth)) == "same"
    ours[0] = 5e-7
    assert kind(ours, eager, Evidence(truth)) == DIFFERS
    ours[0], ours[4] = 0.0, 1e-3 + 3e-7
    assert kind(ours, eager, Evidence(truth)) == DIFFERS


def test_tolerance_sees_a_factor_that_each_element_may_have(truth: Tensor) -> None:
    """Halves are off by some hundredths each; all of them by a seventh in one direction are no roundings."""
    generator = torch.Generator().manual_seed(3)
    noise = 1 + 0.03 * torch.randn(truth.shape, generator=generator, dtype=torch.float64)
    eager, ours = (truth * noise).bfloat16(), (truth * noise.roll(1)).bfloat16()
    assert kind(ours, eager, Evidence(truth)) == "same"
    assert kind((ours.double() * 0.7).bfloat16(), eager, Evidence(truth)) == DIFFERS
    assert kind((ours.double() * 0.85).bfloat16(), eager, Evidence(truth)) == DIFFERS


def test_tolerance_has_no_oracle_where_eager_is_as_far_from_float64_as_it_is_large(truth: Tensor) -> None:
    """The sine of large times: neither its negative nor zero is the same, nor can be told to be wrong."""
    eager = truth.roll(1).float()
    wild = Evidence(truth, samples=lambda: [truth.roll(n).float() for n in (2, 3)])
    assert kind(torch.nextafter(eager, eager + 1), eager, wild) == "same"
    assert kind(-eager, eager, wild) == UNSTABLE
    assert kind(torch.zeros_like(eager), eager, wild) == UNSTABLE
    assert kind(10 * eager, eager, wild) == DIFFERS, "another order of magnitude"
    steady = Evidence(truth, samples=lambda: [eager * (1 + 1e-6)])
    assert kind(-eager, eager, steady) == DIFFERS, "eager's own neighbours stay together"


def test_tolerance_takes_either_side_of_a_kink(truth: Tensor) -> None:
    """Three elements of a thousand lie across a step, as further float64 runs show."""
    eager, other = around(truth, 2), truth.clone()
    other[:3] += 1.0
    ours = around(other, 2, 1)
    crossed = Evidence(truth, kinks=lambda: [truth, other])
    assert kind(ours, eager, Evidence(truth)) == DIFFERS
    assert text(ours, eager, crossed) == "3 of 1000 elements lie across a kink"
    assert kind(ours, eager, crossed) == EXCUSED
    ours[500] += 1.0
    assert kind(ours, eager, crossed) == DIFFERS, "a step where no operand is near one"
    everywhere = Evidence(truth, kinks=lambda: [truth + 1.0, truth - 1.0])
    assert kind(around(truth + 0.5, 2, 1), eager, everywhere) == UNSTABLE, "all elements, by more than a tenth"
    assert kind(around(truth + 1.0, 2, 1), eager, everywhere) == EXCUSED, "one of the runs, whole"
    assert kind(around((truth + 1.0) * (1 + 1e-5), 2, 1), eager, everywhere) != EXCUSED, "near one of them"


def test_tolerance_takes_positions_of_either_side_of_a_kink() -> None:
    near = Evidence(truth=POSITIONS, kinks=lambda: [POSITIONS, OTHER])
    assert kind(OTHER, POSITIONS, near) == EXCUSED
    assert "at [1] ours is 5, eager's 7" in text(torch.tensor([4, 5, 1]), POSITIONS, near)


def test_tolerance_without_an_anchor_scales_with_the_sum() -> None:
    eager = torch.ones(4)
    ours = eager + 20 * torch.finfo(torch.float32).eps
    assert kind(ours, eager, Evidence(why_not="none was made")) == DIFFERS
    assert kind(ours, eager, Evidence(why_not="none was made", fan_in=100.0)) == "same"


def test_tolerance_without_an_anchor_is_no_oracle_as_far_as_neighbours_go() -> None:
    eager = torch.linspace(1.0, 2.0, 50)
    near = Evidence(samples=lambda: [eager + 1e-4, eager - 1e-4])
    assert kind(eager + 2e-4, eager, near) == UNANCHORED
    assert kind(eager + 1e-2, eager, near) == DIFFERS


def test_tolerance_tells_what_differs_behind_what_cannot_be_told(
    monkeypatch: pytest.MonkeyPatch, truth: Tensor
) -> None:
    monkeypatch.setattr(tolerance, "PIECE", 500)
    eager = torch.cat([truth[:500].roll(1), truth[500:]]).float()
    assert kind(torch.cat([-eager[:500], eager[500:]]), eager, Evidence(truth)) == UNSTABLE
    assert text(-eager, eager, Evidence(truth)).startswith("of elements 500 to 999")


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")
@pytest.mark.parametrize("piece", [64, 1 << 26])
def test_tolerance_judges_on_the_device_what_is_kept_on_the_host(
    monkeypatch: pytest.MonkeyPatch, truth: Tensor, piece: int
) -> None:
    monkeypatch.setattr(tolerance, "PIECE", piece)
    device = torch.device("cuda:0")
    shaped = truth.view(50, 20)
    eager, ours = around(shaped, 50, 2), around(shaped, 50, 1)
    assert explain(ours, eager, Evidence(shaped), device) is None
    ours[40, 7] *= 1.0003
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    told = text(ours, eager, Evidence(shaped, samples=lambda: [eager]), device)
    assert torch.cuda.max_memory_allocated() > before
    assert told == text(ours, eager, Evidence(shaped, samples=lambda: [eager]))
    assert tolerance.largest(ours, device) == ours.abs().max()


def test_roundings_that_cancel_in_eager_alone_are_measured_by_its_neighbours() -> None:
    truth, eager = torch.tensor([8e-16, -3e-16, 1e-16], dtype=torch.float64), torch.zeros(3)
    near = torch.tensor([1.2e-7, -6e-8, 0.0])
    evidence = Evidence(truth, samples=lambda: [near, -near])
    assert text(torch.tensor([2e-7, 1e-7, 0.0]), eager, evidence) == ""
    assert text(torch.tensor([2e-5, 1e-7, 0.0]), eager, evidence)
    nothing = Evidence(torch.zeros(3, dtype=torch.float64), samples=lambda: [near])
    assert text(torch.tensor([2e-7, 0.0, 0.0]), eager, nothing), "a zero of the float64 run too is a zero"


@pytest.mark.parametrize(
    ("off", "left", "is_taken"),
    [
        (6e-8, (1e-7, 2e-8), True),
        (6e-8, (0.0, 1e-7), False),  # a run without any rest: what eager gives is a zero, and no rounding
        (1e-3, (1e-7, 2e-8), False),
        (1e-3, (1e-7, 1.0), False),  # a run on the other side of a kink measures nothing
    ],
)
def test_roundings_that_cancel_in_float64_too_are_measured_by_neighbours(
    off: float, left: tuple[float, float], is_taken: bool
) -> None:
    eager, ours = torch.zeros(6), torch.tensor([off, 0, 0, 0, 0, 0])
    runs = [torch.full((6,), rest) for rest in left]
    evidence = Evidence(eager.double(), few=lambda: runs, samples=lambda: runs)
    assert (explain(ours, eager, evidence) is None) is is_taken
