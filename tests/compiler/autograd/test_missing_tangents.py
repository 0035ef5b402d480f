"""Backwards without some of their tangents: what a sum is without one of its summands, to the sign of a zero."""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain, combinations

import pytest
import torch
from torch import Tensor

from assay.compiler.entry.dynamo import assay

Function = Callable[[Tensor], tuple[Tensor, ...]]

PROGRAMS: dict[str, Function] = {
    "rounding": lambda x: (x.floor(), x * -0.0),
    "rounding beside a part": lambda x: (x.round(), x * -0.0, x[1:] * -0.0),
    "power of zero": lambda x: (x**0, x * -0.0, x.sign()),
    "two parts": lambda x: (x[1:] * 2, x[:2] * -0.0),
    "sum of all": lambda x: (x.sum(), x.sign(), x.view(2, 2).flip(0) * -0.0),
    "written part": lambda x: _written(x.clone()),
}


def _written(base: Tensor) -> tuple[Tensor, Tensor]:
    base[1:3].mul_(-0.0)
    return base, base[2:] * 3


def _gradient(function: Function, chosen: tuple[int, ...]) -> Tensor | None:
    x = torch.arange(4.0).requires_grad_()
    results = [function(x)[index] for index in chosen]
    tangents = [torch.full_like(result, -0.0) for result in results]
    (gradient,) = torch.autograd.grad(results, x, tangents, allow_unused=True)
    return gradient


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("name", PROGRAMS)
def test_gradients_by_each_subset_of_results_are_eagers_to_the_sign(name: str, dynamic: bool) -> None:
    function = PROGRAMS[name]
    count = len(function(torch.ones(4)))
    compiled = torch.compile(function, backend=assay, dynamic=dynamic, options={"fallback": "error"})
    for chosen in chain.from_iterable(combinations(range(count), size) for size in range(1, count + 1)):
        eager, ours = _gradient(function, chosen), _gradient(compiled, chosen)
        assert eager is not None and ours is not None, chosen
        assert torch.equal(eager, ours) and torch.equal(eager.signbit(), ours.signbit()), chosen


def test_what_only_a_missing_tangent_reads_is_not_read() -> None:
    """A power's slope is infinite at 0 for a negative exponent; as a number that changes, it stands in a choice between
    that slope and zeros."""
    compiled = torch.compile(_power_beside_product, backend=assay, options={"fallback": "error"})
    for exponent in (3, -2, -3):
        x = torch.arange(3.0).requires_grad_()
        _, product = compiled(x, exponent)
        (gradient,) = torch.autograd.grad([product], [x], [torch.ones(3)])
        assert gradient.tolist() == [5.0] * 3, exponent


def _power_beside_product(x: Tensor, exponent: int) -> tuple[Tensor, Tensor]:
    return x**exponent, 5 * x
