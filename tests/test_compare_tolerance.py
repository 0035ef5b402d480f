"""The rule that decides about numbers: what it must let through, what it must catch, and what it says."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from harness import tolerance
from harness.tolerance import UNTOLD, Evidence, explain


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
    told = explain(ours, eager, Evidence(truth))
    assert told is not None and "1 of 1000" in told and "[137]" in told and "anchored on float64" in told


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
    told = explain(torch.tensor([2.0, ours]), torch.tensor([2.0, eager]), Evidence())
    assert told is not None and "[1]" in told and "stand where eager's stand" in told


def test_tolerance_refuses_a_flipped_sign_of_zero_where_float64_agrees() -> None:
    eager, ours = torch.tensor([0.0, -0.0, 1.0]), torch.tensor([-0.0, -0.0, 1.0])
    assert "sign of zero" in (explain(ours, eager, Evidence()) or "")
    assert "sign of zero" in (explain(ours, eager, Evidence(eager.double())) or "")
    assert explain(ours, eager, Evidence(ours.double())) is None


def test_tolerance_refuses_any_other_integer() -> None:
    told = explain(torch.tensor([1, 2, 4]), torch.tensor([1, 2, 3]), Evidence())
    assert told is not None and "[2]" in told and "exact" in told
    assert explain(torch.tensor([True]), torch.tensor([False]), Evidence()) is not None


POSITIONS = torch.tensor([4, 7, 1])
OTHER = torch.tensor([4, 6, 1])


def test_tolerance_takes_the_position_that_float64_gives() -> None:
    """Where eager's own rounding decided which of two is the greatest."""
    assert explain(OTHER, POSITIONS, Evidence(truth=OTHER)) is None
    assert explain(OTHER, POSITIONS, Evidence(truth=POSITIONS)) is not None
    assert explain(torch.tensor([3, 6, 1]), POSITIONS, Evidence(truth=OTHER)) is not None


@pytest.mark.parametrize(("inputs", "is_taken"), [(100_000, True), (12, False)])
def test_tolerance_takes_positions_of_neighbours_where_inputs_are_many(inputs: int, is_taken: bool) -> None:
    """In a small program a tie may be what it is about."""
    near = Evidence(truth=POSITIONS, elsewhere=lambda: [POSITIONS, OTHER], fan_in=inputs / 3)
    assert (explain(OTHER, POSITIONS, near) is None) == is_taken
    told = explain(torch.tensor([4, 5, 1]), POSITIONS, near)
    assert told is not None and "at [1] ours is 5, eager's 7" in told


def test_tolerance_drops_an_anchor_that_took_another_path(truth: Tensor) -> None:
    eager = around(truth, 2)
    eager[3] += 1.0
    assert explain(around(truth, 2), eager, Evidence(truth)) is not None
    told = explain(eager + 0.1, eager, Evidence(truth))
    assert told is not None and "unanchored" in told and "another path" in told


def test_tolerance_keeps_the_anchor_of_numbers_that_are_only_rounding() -> None:
    """A gradient that is zero in exact arithmetic, beside gradients of size one."""
    truth, scale = torch.full((64,), 1e-17, dtype=torch.float64), 1.0
    eager, ours = (1e-8 * torch.randn(64, generator=torch.Generator().manual_seed(seed)) for seed in (0, 1))
    assert explain(ours, eager, Evidence(truth, scale=scale)) is None
    assert explain(ours + 1e-4, eager, Evidence(truth, scale=scale)) is not None


def test_tolerance_without_an_anchor_scales_with_the_sum() -> None:
    eager = torch.ones(4)
    ours = eager + 20 * torch.finfo(torch.float32).eps
    assert explain(ours, eager, Evidence(why_not="none was made")) is not None
    assert explain(ours, eager, Evidence(why_not="none was made", fan_in=100.0)) is None


def test_tolerance_takes_0d_and_empty_tensors() -> None:
    assert explain(torch.tensor(1.0), torch.tensor(1.0), Evidence(torch.tensor(1.0).double())) is None
    assert explain(torch.tensor(2.0), torch.tensor(1.0), Evidence(torch.tensor(1.0).double())) is not None
    assert explain(torch.empty(0, 3), torch.empty(0, 3), Evidence(torch.empty(0, 3).double())) is None


def test_explain_judges_what_is_ill_conditioned_by_its_own_spread_and_no_further() -> None:
    """Eager and every neighbour of it are past the anchor's reach: their spread is the measure, up to a limit."""
    eager = torch.linspace(1.0, 2.0, 50)
    truth = eager.double() + 0.01
    neighbours = [eager + step for step in (0.004, -0.005)]
    evidence = Evidence(truth, samples=lambda: neighbours)
    assert explain(eager + 0.008, eager, evidence) is None
    assert explain(eager + 0.1, eager, evidence) is not None
    far = Evidence(truth, samples=lambda: [eager + 0.5, eager - 0.5])
    assert explain(eager + 0.008, eager, far) is not None, "half of the scale is another result, not rounding"


def test_tolerance_takes_the_rest_of_what_cancelled_as_rounding_of_what_did() -> None:
    """A gradient that is nothing but rounding, with no other gradient beside it that would tell its scale."""
    truth = torch.full((8,), 1e-17, dtype=torch.float64)
    eager, ours = torch.tensor([0.0, 1e-6] * 4), torch.tensor([3e-6, 0.0] * 4)
    assert explain(ours, eager, Evidence(truth, scale=1e-6)) is not None
    assert explain(ours, eager, Evidence(truth, scale=1e-6, beyond=5.0)) is None
    assert explain(ours * 10, eager, Evidence(truth, scale=1e-6, beyond=5.0)) is not None
    assert explain(ours, eager, Evidence(truth + 1e-5, scale=1e-6, beyond=5.0)) is not None, "that is a number"


def test_tolerance_draws_neighbours_that_keep_labels_where_the_others_stray() -> None:
    truth = torch.tensor([0.1241], dtype=torch.float64)
    eager, strayed = truth.float(), [torch.tensor([9.0])]
    ours, near = eager + 2e-7, [eager + 1e-7]
    assert explain(ours, eager, Evidence(truth, samples=lambda: strayed)) is not None
    assert explain(ours, eager, Evidence(truth, samples=lambda: strayed, kept=lambda: near)) is None
    assert explain(ours, eager, Evidence(truth, samples=lambda: strayed, kept=lambda: strayed)) is not None


@pytest.mark.parametrize(("off", "fan_in", "is_untold"), [(0.3, 1e7, True), (0.5, 1e7, False), (0.3, 1.0, False)])
def test_tolerance_says_where_eager_goes_as_far_itself(off: float, fan_in: float, is_untold: bool) -> None:
    """Of few numbers somebody chose them, so that a step between them is what the program is about."""
    eager = around(torch.linspace(-1, 1, 1000, dtype=torch.float64), 0)
    strays = [eager + 0.4 * eager.roll(1), eager + 0.2]
    evidence = Evidence(samples=lambda: strays, scale=1.0, fan_in=fan_in)
    told = explain(eager + off, eager, evidence)
    assert told is not None and told.startswith(UNTOLD) == is_untold
    near = Evidence(samples=lambda: [*strays, eager + 1e-6], scale=1.0, fan_in=fan_in)
    told = explain(eager + off, eager, near)
    assert told is not None and not told.startswith(UNTOLD)


def test_tolerance_judges_what_is_large_in_pieces(monkeypatch: pytest.MonkeyPatch, truth: Tensor) -> None:
    monkeypatch.setattr(tolerance, "PIECE", 64)
    shaped = truth.view(50, 20)
    eager, ours = around(shaped, 50, 2), around(shaped, 50, 1)
    assert explain(ours, eager, Evidence(shaped)) is None
    ours[40, 7] *= 1.0003
    assert "of elements 768 to 831: 1 of 64 elements; the worst at [39]" in (
        explain(ours, eager, Evidence(shaped)) or ""
    )
    spread = Evidence(shaped, samples=lambda: [ours, eager[:3]])
    assert explain(ours, eager, spread) is None
    assert tolerance.largest(ours) == ours.abs().max()


def test_tolerance_takes_the_median_of_some_of_many(monkeypatch: pytest.MonkeyPatch, truth: Tensor) -> None:
    expected = tolerance._typical(truth)
    monkeypatch.setattr(tolerance, "TYPICAL", 100)
    assert tolerance._typical(truth) == pytest.approx(expected, rel=0.3)
    assert tolerance._typical(truth) == tolerance._typical(truth[::11]) != expected


def test_tolerance_tells_what_differs_behind_what_cannot_be_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tolerance, "PIECE", 100)
    eager = around(torch.linspace(-1, 1, 200, dtype=torch.float64), 0)
    strays = torch.cat([torch.full((100,), 0.4), torch.full((100,), 0.2)])
    evidence = Evidence(samples=lambda: [eager + strays], scale=1.0, fan_in=1e7)
    told = explain(eager + strays / 2, eager, evidence)
    assert told is not None and told.startswith(UNTOLD)
    told = explain(eager + 0.3, eager, evidence)
    assert told is not None and told.startswith("of elements 100 to 199")


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
    told = explain(ours, eager, Evidence(shaped, samples=lambda: [eager]), device)
    assert torch.cuda.max_memory_allocated() > before
    assert told is not None and told == explain(ours, eager, Evidence(shaped, samples=lambda: [eager]))
    assert tolerance.largest(ours, device) == ours.abs().max()
