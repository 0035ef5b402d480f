"""Reductions into an `out=` of another dtype, which eager computes in that dtype."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from assay.compiler import journal

aten = torch.ops.aten
Program = Callable[[Tensor, Tensor], Tensor]

PROGRAMS: dict[str, Program] = {
    "sum": lambda x, y: torch.sum(x, 0, out=y),
    "sum_by_name": lambda x, y: torch.sum(input=x, dim=0, keepdim=False, out=y),
    "sum_of_aten": lambda x, y: aten.sum.IntList_out(x, [0], out=y),
    "prod": lambda x, y: torch.prod(x, 0, out=y),
    "nansum": lambda x, y: torch.nansum(x, 0, out=y),
    "mean": lambda x, y: torch.mean(x, 0, out=y),
    "nanmean": lambda x, y: torch.nanmean(x, 0, out=y),
    "var": lambda x, y: torch.var(x, 0, out=y),
    "std": lambda x, y: torch.std(x, 0, correction=0, out=y),
    "all": lambda x, y: torch.all(x, 0, out=y),
    "any": lambda x, y: torch.any(x, 0, out=y),
}
GIVEN = (torch.float32, torch.int64, torch.complex64)
TAKEN = (torch.float64, torch.int64, torch.uint8, torch.bool, torch.complex128)
BOUND = {torch.float64: 1e-12, torch.complex128: 1e-12}


def result(program: Program, x: Tensor, dtype: torch.dtype) -> Tensor | None:
    """What stands in `out=` after the call; None where the call raises."""
    y = torch.zeros(3, dtype=dtype)
    try:
        returned = program(x, y)
    except RuntimeError:
        return None
    assert returned is y
    return y


@pytest.mark.parametrize("name", PROGRAMS)
def test_reductions_are_computed_in_the_dtype_that_they_are_written_to(name: str) -> None:
    """Torch's fake tensors refuse some of what eager takes, behind every backend."""
    program, taken = PROGRAMS[name], 0
    for given, dtype in itertools.product(GIVEN, TAKEN):
        torch._dynamo.reset()
        x = torch.randn(33, 3, generator=torch.Generator().manual_seed(0)).mul(0.7).add(0.1).to(given)
        expected = result(program, x, dtype)
        found = result(torch.compile(program, backend="assay"), x, dtype)
        if found is None or expected is None:
            assert found is None and (
                expected is None or result(torch.compile(program, backend="eager"), x, dtype) is None
            )
            continue
        bound = BOUND.get(dtype, 1e-5)
        torch.testing.assert_close(found, expected, rtol=bound, atol=bound)
        taken += given is not dtype
    assert taken


@pytest.mark.parametrize("function", [torch.logsumexp, torch.special.logsumexp])
def test_logsumexp_is_summed_in_the_dtype_that_it_is_written_to(function: Callable[..., Tensor]) -> None:
    def program(x: Tensor, y: Tensor) -> Tensor:
        return function(x, (0,), out=y)

    x = torch.randn(33, 3, generator=torch.Generator().manual_seed(0))
    for given in (x.bfloat16(), x.mul(3).long(), x.masked_fill(x > 1, torch.inf)):
        torch._dynamo.reset()
        exact = given.double().logsumexp(0)
        expected, found = (
            result(each, given, torch.float64) for each in (program, torch.compile(program, backend="assay"))
        )
        assert expected is not None and found is not None
        torch.testing.assert_close(found, exact, rtol=1e-6, atol=2 * float((expected - exact).nan_to_num().abs().max()))


def test_reductions_into_another_dtype_stay_in_the_graph() -> None:
    torch._dynamo.reset()
    journal.reset()
    x, y = torch.randn(33, 3), torch.zeros(3, dtype=torch.float64)
    torch.compile(PROGRAMS["sum"], backend="assay", options={"fallback": "error"})(x, y)
    torch.testing.assert_close(y, x.double().sum(0))
    assert not journal.totals()["eager_graphs"] and not journal.totals()["fallbacks"]
