"""The bound of rule 3: the same by its quick checks as element by element, and the same as from its definition."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from assay.harness.judge.envelope import (
    FACTOR,
    LIKE,
    MANY,
    MOST,
    RUNS,
    SAMPLED,
    SPAN,
    TWICE,
    Bounds,
    Precision,
    bound_of,
    factor_of,
)

PRECISION = Precision.of(torch.float32)


def by_definition(centre: Tensor, worst: Tensor) -> Tensor:
    """Four times the largest error among the elements beside each, in the order of magnitudes, and 4 ulps."""
    order = centre.abs().argsort()
    envelope = torch.empty_like(worst)
    for rank, place in enumerate(order.tolist()):
        envelope[place] = worst[order[max(0, rank - SPAN) : rank + SPAN + 1]].max()
    return FACTOR * envelope + PRECISION.ulps(centre.abs())


def drawn(seed: int, count: int = 500) -> tuple[Tensor, list[Tensor]]:
    """A centre, and the errors of three runs, a few of which are far larger than the others."""
    generator = torch.Generator().manual_seed(seed)
    centre = torch.randn(count, dtype=torch.float64, generator=generator)
    errors = [torch.rand(count, dtype=torch.float64, generator=generator) * 1e-6 for _ in range(3)]
    errors[0][:: count // 5] *= 50
    return centre, errors


@pytest.mark.parametrize("seed", range(3))
def test_bound_is_that_of_elements_of_like_magnitude(seed: int) -> None:
    centre, errors = drawn(seed)
    assert torch.equal(bound_of(centre, errors, PRECISION), by_definition(centre, torch.stack(errors).amax(0)))


def test_bound_needs_few_of_the_zeros_without_an_error() -> None:
    centre, errors = drawn(0)
    centre[:200], errors = 0.0, [error.index_fill(0, torch.arange(200), 0.0) for error in errors]
    bound = bound_of(centre, errors, PRECISION)
    assert torch.equal(bound[200:], by_definition(centre, torch.stack(errors).amax(0))[200:])


@pytest.mark.parametrize(("every", "is_alike"), [(4, True), (LIKE, True), (LIKE + 8, False)])
def test_bound_of_zeros_is_one_where_one_in_64_has_an_error(every: int, is_alike: bool) -> None:
    """No order says which zeros are beside each other. Where hardly any has an error, most have no bound but ulps."""
    count = 4 * (LIKE + 8) * LIKE
    centre, error = torch.zeros(count, dtype=torch.float64), torch.zeros(count, dtype=torch.float64)
    centre[count // 2 :] = torch.linspace(1.0, 2.0, count // 2, dtype=torch.float64)
    error[: count // 2 : every] = 1e-7
    bound = bound_of(centre, [error], PRECISION)[: count // 2]
    assert bool((bound >= FACTOR * 1e-7).all()) == is_alike
    assert is_alike or int((bound < 1e-30).sum()) > count // 4


def test_bound_of_a_large_tensor_is_that_of_chosen_elements() -> None:
    count = 2 * SAMPLED
    centre, errors = drawn(2, count)
    errors = [error * centre.abs() for error in errors]
    bound, worst = bound_of(centre, errors, PRECISION), torch.stack(errors).amax(0)
    assert bool((bound >= FACTOR * worst).all())
    looked_at = torch.arange(0, count, 997)
    exact = by_definition_at(looked_at, centre, worst)
    assert bool(((bound[looked_at] - FACTOR * worst[looked_at] > 0) & (bound[looked_at] < 60 * exact)).all())
    assert 0.9 < float((bound[looked_at] / exact).median()) < 1.1


def test_bounds_hold_in_a_large_tensor_as_element_by_element() -> None:
    centre, errors = drawn(3, 2 * SAMPLED)
    bounds, is_near = Bounds(centre, PRECISION), torch.zeros(centre.shape, dtype=torch.bool)
    off = 0.99 * bounds.of(errors)
    assert bounds.hold(off, errors, is_near)
    assert int((bounds.beyond(off, errors[0]) > 1).sum()) == int((off > bounds.of(errors[:1])).sum())
    off[12345] *= 1.02
    assert not bounds.hold(off, errors, is_near)
    is_near[12345] = True
    assert bounds.hold(off, errors, is_near)


def by_definition_at(places: Tensor, centre: Tensor, worst: Tensor) -> Tensor:
    """`by_definition` at some places."""
    order = centre.abs().argsort()
    ranks = torch.empty_like(order).scatter_(0, order, torch.arange(order.numel()))
    found = [worst[order[max(0, rank - SPAN) : rank + SPAN + 1]].max() for rank in ranks[places].tolist()]
    return FACTOR * torch.stack(found) + PRECISION.ulps(centre.abs()[places])


def test_bound_of_two_runs_is_no_less_than_that_of_one() -> None:
    centre, errors = drawn(1)
    bounds = Bounds(centre, PRECISION)
    assert bool((bounds.of(errors[:2]) >= bounds.of(errors[:1])).all())


@pytest.mark.parametrize("count", [1, 5, 2 * SPAN + 1, 500])
@pytest.mark.parametrize("scale", [0.0, 0.5, 3.0, 20.0, 40.0, 1000.0])
def test_bounds_hold_where_each_element_is_within_its_own(count: int, scale: float) -> None:
    for seed in range(20):
        centre, errors = drawn(seed, max(count, 5))
        centre, errors = centre[:count], [error[:count] for error in errors]
        off = scale * errors[1].flip(0)
        is_near = torch.arange(count) % 7 == seed % 7
        expected = bool(((off <= bound_of(centre, errors, PRECISION)) | is_near).all())
        assert Bounds(centre, PRECISION).hold(off, errors, is_near) == expected
        assert Bounds(centre, PRECISION).hold(off, [], is_near) == bool(
            ((off <= PRECISION.ulps(centre.abs())) | is_near).all()
        )


def share_beyond(factor: float) -> float:
    """Of errors `TWICE` as large as eager's, the share beyond so many envelopes, where all are normal."""
    at = torch.linspace(1e-3, 9, 200_001, dtype=torch.float64)
    below = torch.erf(at / math.sqrt(2)) ** (RUNS * (2 * SPAN + 1))
    middle = (at[1:] + at[:-1]) / 2
    return float((below.diff() * torch.erfc(factor / TWICE * middle / math.sqrt(2))).sum())


@pytest.mark.parametrize("numel", [MANY, 10**6, 10**7, 10**8])
def test_factor_leaves_as_few_tensors_beyond_whatever_their_size(numel: int) -> None:
    assert 1e-4 < numel * share_beyond(factor_of(numel)) < 2e-4


def test_factor_is_four_for_most_tensors_and_never_more_than_five() -> None:
    factors = [factor_of(count) for count in (1, 64, MANY, 10**6, 10**8, 10**30)]
    assert factors[:3] == [FACTOR] * 3 and factors == sorted(factors) and factors[-1] == MOST


@pytest.mark.parametrize(("numel", "within", "beyond"), [(MANY, 3.99, 4.01), (10**7, 4.5, 4.6), (10**9, 4.99, 5.01)])
def test_bounds_of_some_elements_are_those_of_the_whole_tensor(numel: int, within: float, beyond: float) -> None:
    centre = torch.linspace(1, 2, 500, dtype=torch.float64)
    errors = [torch.full_like(centre, 1e-3)]
    bounds, is_near = Bounds(centre, PRECISION, numel), torch.zeros(500, dtype=torch.bool)
    for factor, is_held in ((within, True), (beyond, False), (10.0, False)):
        off = errors[0].clone()
        off[77] = factor * 1e-3
        assert bounds.hold(off, errors, is_near) is is_held


def test_errors_twice_as_large_as_eagers_are_within_the_bounds_of_a_large_tensor() -> None:
    generator, count = torch.Generator().manual_seed(0), 1 << 20

    def errors_of(deviation: float) -> Tensor:
        return torch.randn(count, dtype=torch.float64, generator=generator).abs() * deviation

    centre = 1 + torch.rand(count, dtype=torch.float64, generator=generator)
    bounds, is_near = Bounds(centre, PRECISION), torch.zeros(count, dtype=torch.bool)
    errors = [errors_of(1e-4) for _ in range(4)]
    assert bounds.hold(errors_of(2e-4), errors, is_near)
    assert not bounds.hold(errors_of(1e-3), errors, is_near)
