"""Random numbers as functions of a seed: their distributions, and that all who ask for one get the same."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from assay.compiler import journal
from assay.compiler.entry.dynamo import assay
from assay.compiler.ir.graph.roles import Seed
from assay.compiler.ir.graph.trace import is_random
from assay.compiler.passes.random.functionalize_rng import functionalize_rng
from assay.compiler.passes.random.give_key import give_key
from assay.harness.backends.registry import resolve
from tests.compiler.passes.random.test_split_dropout import recorded
from tests.lowering import traced

COUNT = 200_000
Function = Callable[..., Any]


def compiled(function: Function, dynamic: bool = False, **options: object) -> Function:
    torch._dynamo.reset()
    given = {"functionalize_rng": True, "fallback": "error", **options}
    return torch.compile(function, backend=assay, options=given, dynamic=dynamic)


def drawn(function: Function, *args: Tensor) -> Any:
    torch.manual_seed(11)
    return compiled(function)(*args)


def assert_distributed(values: Tensor, share_below: Callable[[Tensor], Tensor]) -> None:
    """No further from the distribution than one sample of a million is (Kolmogorov and Smirnov)."""
    found = values.double().flatten().sort().values
    expected, steps = share_below(found), torch.arange(found.numel() + 1, dtype=torch.float64) / found.numel()
    distance = torch.maximum((expected - steps[:-1]).abs(), (steps[1:] - expected).abs()).max()
    assert distance < 2.7 / math.sqrt(found.numel())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16], ids=str)
def test_uniform_numbers(dtype: torch.dtype) -> None:
    values = drawn(lambda: torch.rand(COUNT // 4, 4, dtype=dtype))
    assert values.dtype is dtype and values.is_contiguous() and 0 <= values.min() and values.max() < 1
    grain = {torch.float16: 2.0**-11, torch.bfloat16: 2.0**-8}.get(dtype, 0.0)
    assert_distributed(values.double() + grain * torch.rand(values.shape, dtype=torch.float64), lambda x: x)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_normal_numbers(dtype: torch.dtype) -> None:
    values = drawn(lambda: torch.randn(COUNT, dtype=dtype))
    assert values.dtype is dtype and values.isfinite().all() and 4 < values.abs().max() < 6.8
    assert_distributed(values, torch.special.ndtr)
    around = drawn(lambda x: x.clone().normal_(3, 0.5), torch.empty(COUNT, dtype=dtype))
    assert_distributed(around, lambda x: torch.special.ndtr((x - 3) / 0.5))


def test_numbers_between() -> None:
    values = drawn(lambda x: x.clone().uniform_(-2, 3), torch.empty(COUNT))
    assert -2 <= values.min() and values.max() < 3
    assert_distributed(values, lambda x: (x + 2) / 5)
    narrow = drawn(lambda x: x.clone().uniform_(16777216, 16777218), torch.empty(COUNT))
    assert narrow.unique().tolist() == [16777216], "what rounds to the end begins again"


@pytest.mark.parametrize(("low", "high"), [(0, 2), (-3, 4), (5, 6), (0, 1000)])
def test_whole_numbers(low: int, high: int) -> None:
    values = drawn(lambda: torch.randint(low, high, (COUNT,)))
    counts = torch.bincount(values - low, minlength=high - low).double()
    expected = COUNT / (high - low)
    assert values.dtype is torch.int64 and counts.numel() == high - low
    assert ((counts - expected).abs() < 5.5 * math.sqrt(expected)).all()


@pytest.mark.parametrize("size", [1 << 31, (1 << 31) + 1, 1 << 40])
def test_whole_numbers_of_a_wide_range(size: int) -> None:
    values = drawn(lambda: torch.randint(-5, size - 5, (COUNT,)))
    assert -5 <= values.min() and values.max() < size - 5
    assert_distributed(values, lambda x: (x + 5) / size)


@pytest.mark.parametrize("share", [0.001, 0.3, 0.5, 1.0])
def test_chosen_with_a_probability(share: float) -> None:
    values = drawn(lambda x: x.clone().bernoulli_(share), torch.empty(COUNT))
    assert set(values.unique().tolist()) <= {0.0, 1.0}
    assert abs(values.double().mean() - share) <= 5 * math.sqrt(share * (1 - share) / COUNT)


def several(x: Tensor) -> tuple[Tensor, ...]:
    return F.dropout(x, 0.4), torch.rand_like(x), torch.rand_like(x), torch.randn_like(x), F.dropout(x, 0.4)


def test_numbers_follow_from_the_seed_and_from_nothing_else() -> None:
    x, run, threads = torch.ones(300, 70), compiled(several), torch.get_num_threads()
    torch.manual_seed(3)
    first, second = run(x), run(x)
    try:
        for count in (1, 2, 3, 8):
            torch.set_num_threads(count)
            torch.manual_seed(3)
            assert all(torch.equal(*pair) for pair in zip(run(x), first, strict=True))
    finally:
        torch.set_num_threads(threads)
    assert not any(torch.equal(*pair) for pair in zip(first, second, strict=True))
    torch.manual_seed(3)
    by_aten = compiled(several, target="aten")(x)
    for ours, atens in zip(first, by_aten, strict=True):
        torch.testing.assert_close(ours, atens, rtol=1e-6, atol=1e-6)


def test_draws_of_one_call_have_nothing_to_do_with_each_other() -> None:
    results = [result.flatten().double() for result in drawn(several, torch.ones(500, 400))]
    correlations = torch.corrcoef(torch.stack(results)) - torch.eye(5)
    shifted = torch.corrcoef(torch.stack([results[1][1:], results[1][:-1], results[3][1:], results[3][:-1]]))
    assert correlations.abs().max() < 5 / math.sqrt(COUNT)
    assert (shifted - torch.eye(4)).abs().max() < 5 / math.sqrt(COUNT)


@pytest.mark.parametrize("budget", [1.0, 0.5, 0.0])
def test_gradients_see_the_numbers_that_forward_drew(budget: float) -> None:
    def layers(w: Tensor) -> Tensor:
        for _ in range(3):
            w = F.dropout(w * 2, 0.3)
        return w

    w = torch.ones(64, 80, requires_grad=True)
    torch.manual_seed(4)
    y = compiled(layers, memory_budget=budget)(w)
    y.sum().backward()
    assert w.grad is not None and 0.2 < (y != 0).double().mean() < 0.5
    torch.testing.assert_close(w.grad, y.detach())


def test_gradients_of_gradients_see_them_too() -> None:
    w = torch.randn(50, requires_grad=True)
    torch.manual_seed(9)
    y = compiled(lambda w: F.dropout(w.sin(), 0.5))(w)
    (slope,) = torch.autograd.grad(y.sum(), w, create_graph=True)
    (curve,) = torch.autograd.grad(slope.sum(), w)
    factor = (y / w.sin()).detach()
    torch.testing.assert_close(slope, factor * w.cos())
    torch.testing.assert_close(curve, -factor * w.sin())


def test_a_graph_draws_nothing_and_takes_its_seed_as_an_input() -> None:
    program = recorded(lambda x: F.dropout(x, 0.2) + torch.rand_like(x) + x.clone().normal_(), torch.ones(9))
    assert functionalize_rng(program) == 3
    given, reserve = give_key(program)
    assert isinstance(given.signature.inputs[-1], Seed) and reserve is not None
    assert reserve().shape == (4, 2) and not any(map(is_random, given.module.graph.nodes))


def test_what_no_rule_is_for_is_drawn_by_aten() -> None:
    probabilities = torch.tensor([0.2, 0.5, 0.3])

    def function(x: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        return torch.multinomial(x, 2), torch.bernoulli(x), torch.rand(3, 4).t(), torch.rand_like(torch.ones(3, 4).t())

    program = traced(function, probabilities)
    assert functionalize_rng(program) == 1
    assert sum(map(is_random, program.module.graph.nodes)) == 4
    assert [result.shape for result in drawn(function, probabilities)] == [(2,), (3,), (4, 3), (4, 3)]


def test_sizes_that_are_symbols_are_drawn_by_aten() -> None:
    x, run = torch.ones(20), compiled(lambda x: F.dropout(x, 0.5), dynamic=True)
    torch.manual_seed(2)
    ours = run(x)
    torch.manual_seed(2)
    assert torch.equal(ours, F.dropout(x, 0.5))


@pytest.mark.parametrize(
    "function",
    [lambda x: x.clone().uniform_(3, 1), lambda x: x.clone().normal_(0, -1), lambda x: x.clone().bernoulli_(1.5)],
    ids=["uniform", "normal", "bernoulli"],
)
def test_bad_arguments_are_eagers_errors(function: Function) -> None:
    with pytest.raises(RuntimeError):
        function(torch.ones(4))
    with pytest.raises(RuntimeError):
        compiled(function)(torch.ones(4))


def test_the_option_is_a_truth_value() -> None:
    with pytest.raises(Exception, match="OptionError: assay: option functionalize_rng"):
        compiled(lambda x: x + 1, functionalize_rng="yes")(torch.ones(2))


def test_a_seeded_call_is_made_again_from_what_was_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    """With the numbers of the same generator, other ones at each call, and the same for backward."""
    monkeypatch.setenv("ASSAY_WARM", "1")
    monkeypatch.setenv("ASSAY_CACHE", str(tmp_path))
    journal.reset()
    found = []
    for _ in range(2):
        run = compiled(lambda x: F.dropout(x, 0.5) * 3)
        torch.manual_seed(1)
        for _ in range(2):
            x = torch.ones(1000, requires_grad=True)
            y = run(x)
            y.sum().backward()
            assert torch.equal(x.grad, y.detach())  # type: ignore[arg-type]
            found.append(y.detach())
    assert journal.totals()["restored"] == 1 and journal.totals()["uncached"] == {}
    assert torch.equal(found[0], found[2]) and torch.equal(found[1], found[3])
    assert not torch.equal(found[0], found[1]) and 0.3 < (found[0] != 0).double().mean() < 0.7


def test_the_harness_holds_nothing_against_its_numbers() -> None:
    assert resolve("assay,functionalize_rng=True").has_own_random_stream
    assert not resolve("assay").has_own_random_stream
