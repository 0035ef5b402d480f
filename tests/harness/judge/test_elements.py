"""Large tensors are judged by some of their elements, where further runs of eager are needed."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from assay.harness.judge import elements
from assay.harness.judge.elements import EVEN, LARGE, STRAYS, SUSPECTS, Elements, elements_of
from assay.harness.judge.envelope import Precision
from assay.harness.judge.tolerance import Evidence, Finding, explain, is_same

COUNT = 4 * LARGE


def numbers() -> tuple[Tensor, Tensor, Tensor]:
    """Ours, eager's and float64's; both of the former round."""
    truth = torch.randn(COUNT, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    return (truth * (1 + 1e-7)).float(), (truth * (1 - 1e-7)).float(), truth


def run(seed: int, truth: Tensor, some: Elements) -> Tensor:
    noise = torch.randn(COUNT, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return some.of((truth * (1 + 1e-7 * noise)).float())


def judged(ours: Tensor, eager: Tensor, truth: Tensor) -> Finding | None:
    some = elements_of(ours, eager, truth)
    assert some is not None
    samples = [run(seed, truth, some) for seed in range(4)]
    evidence = Evidence(some.of(truth), samples=lambda: samples, some=some)
    return explain(some.of(ours), some.of(eager), evidence)


def test_small_and_exact_tensors_are_judged_whole() -> None:
    small = torch.randn(LARGE)
    assert elements_of(small, small + 1, None) is None
    assert elements_of(torch.zeros(COUNT, dtype=torch.int64), torch.ones(COUNT, dtype=torch.int64), None) is None


def test_elements_are_at_even_distances_and_where_one_run_settles_nothing() -> None:
    ours, eager, truth = numbers()
    ours[[7, 1001, COUNT - 3]] += torch.tensor([1.0, 3.0, 2.0])
    some = elements_of(ours, eager, truth)
    assert some is not None
    assert some.even == EVEN and {7, 1001, COUNT - 3} <= set(some.places[some.even :].tolist())
    assert some.share == 1 and some.numel == COUNT
    assert torch.equal(some.of(ours), ours[some.places]) and some.of(ours[:5]).numel() == 5


def test_suspects_are_at_most_so_many_and_stand_for_all() -> None:
    ours, eager, truth = numbers()
    some = elements_of(ours * 1.1, eager, truth)
    assert some is not None
    assert some.places.numel() <= EVEN + SUSPECTS + STRAYS and some.share == pytest.approx(COUNT / SUSPECTS, rel=1e-3)


def test_roundings_are_the_same_and_one_wrong_element_is_not() -> None:
    ours, eager, truth = numbers()
    assert is_same(judged(ours, eager, truth))
    ours[123_457] *= 1 + 1e-4
    found = judged(ours, eager, truth)
    assert found is not None and found.kind == "differs"
    assert f" elements that were judged of {COUNT}; the worst at [123457]" in found.text


def test_a_wrong_element_of_a_matrix_is_named_by_row_and_column() -> None:
    ours, eager, truth = (each.reshape(-1, 512) for each in numbers())
    ours[77, 13] = 5
    some = elements_of(ours, eager, truth)
    assert some is not None
    found = explain(some.of(ours), some.of(eager), Evidence(some.of(truth), some=some, few=tuple))
    assert found is not None and "the worst at [77, 13]" in found.text


@pytest.mark.parametrize("factor", [0.7, 1 + 1e-5])
def test_a_factor_is_a_difference(factor: float) -> None:
    ours, eager, truth = numbers()
    found = judged(ours * factor, eager, truth)
    assert found is not None and found.kind == "differs"


def test_suspects_are_found_in_every_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, eager, truth = numbers()
    ours[[7, 1001, COUNT - 3]] += 1
    monkeypatch.setattr(elements, "AT_ONCE", COUNT // 3)
    some = elements_of(ours, eager, truth)
    assert some is not None and {7, 1001, COUNT - 3} <= set(some.places[some.even :].tolist())


def test_complex_elements_are_taken_as_pairs() -> None:
    eager = torch.randn(2 * LARGE, dtype=torch.complex64)
    ours = eager.clone()
    ours[5] += 1j
    some = elements_of(ours, eager, eager.to(torch.complex128))
    assert some is not None and 5 in some.places[some.even :].tolist()
    assert Precision.of(eager.dtype).epsilon > 0


def test_bound_of_a_part_grows_with_the_number_of_all_elements() -> None:
    """Eager is off by one rounding everywhere, and ours by four and a little once: as one in many elements may be."""
    truth = torch.linspace(1, 2, 1000, dtype=torch.float64)
    eager, ours = truth * (1 + 1e-4), truth * (1 + 1e-4)
    ours[500] = truth[500] * (1 + 4.3e-4)

    def found(shape: tuple[int, ...]) -> Finding | None:
        some = Elements(torch.arange(1000), shape, 1000, 1.0)
        return explain(ours.float(), eager.float(), Evidence(truth, some=some))

    assert found((10_000, 10_000)) is None
    told = found((1000, 100))
    assert told is not None and "4 * eager's error" in told.text
    ours[500] = truth[500] * (1 + 1e-3)
    told = found((10_000, 10_000))
    assert told is not None and "4.79 * eager's error" in told.text
