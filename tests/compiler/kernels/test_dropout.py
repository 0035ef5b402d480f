"""Dropout draws the numbers of torch's generator: the same mask, the same result, the same state after."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from assay.compiler.kernels import dropout

aten = torch.ops.aten.native_dropout.default


def both(x: Tensor, p: float, train: bool | None, drawn_before: int = 0) -> tuple[list[Tensor], list[Tensor]]:
    """ATen's results and state, and ours, from one state of the default generator."""
    runs = []
    with torch.random.fork_rng(devices=[]):
        for function in (aten, dropout.native_dropout):
            torch.manual_seed(3)
            torch.empty(drawn_before, dtype=torch.int32).random_()
            runs.append([*function(x, p, train), torch.get_rng_state()])
    return runs[0], runs[1]


def assert_equal(expected: list[Tensor], got: list[Tensor]) -> None:
    for a, b in zip(expected, got, strict=True):
        assert (a.dtype, a.shape, a.stride()) == (b.dtype, b.shape, b.stride())
        torch.testing.assert_close(a, b, rtol=0, atol=0, equal_nan=True)
        assert not a.is_floating_point() or torch.equal(a.signbit(), b.signbit())


@pytest.mark.parametrize("count", [4096, 4097, 5000, 100_003])
@pytest.mark.parametrize("p", [0.0, 0.1, 1 / 3, 0.5, 0.999999, 1.0])
def test_dropout_is_eagers(p: float, count: int) -> None:
    x = torch.randn(count, generator=torch.Generator().manual_seed(0))
    x[7], x[8], x[9] = float("nan"), float("inf"), -0.0
    assert_equal(*both(x, p, True))


@pytest.mark.parametrize("drawn_before", [1, 2, 623, 624, 625, 1247])
def test_dropout_goes_on_where_the_generator_is(drawn_before: int) -> None:
    assert_equal(*both(torch.ones(50, 100), 0.25, None, drawn_before))


@pytest.mark.parametrize(
    "x",
    [torch.ones(0), torch.ones(9), torch.ones(64, 100).t(), torch.ones(80, 80).bfloat16(), torch.ones(80, 80).double()],
)
def test_dropout_leaves_other_tensors_to_aten(x: Tensor) -> None:
    assert not dropout.is_ours(x)
    assert_equal(*both(x, 0.5, True))
    assert_equal(*both(torch.ones(80, 80), 0.5, False))


def test_dropout_that_draws_otherwise_is_refused() -> None:
    made = dropout._dropout()
    if made is None:
        pytest.skip("ATen draws by another library here, or there is no compiler")
    assert dropout._agrees(made)
    assert not dropout._agrees(lambda *_: None)
    assert not dropout._agrees(lambda state, below, *rest: made(state, below // 2, *rest))


def test_compiled_dropout_is_eagers_on_every_call() -> None:
    def function(x: Tensor) -> Tensor:
        return torch.nn.functional.dropout(x * 2, 0.3, True) + 1

    x = torch.linspace(-1, 1, 10_000)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        expected = [function(x) for _ in range(3)]
        state = torch.get_rng_state()
        torch.manual_seed(1)
        compiled = torch.compile(function, backend="assay")
        torch.testing.assert_close([compiled(x) for _ in range(3)], expected)
        assert torch.equal(torch.get_rng_state(), state)
