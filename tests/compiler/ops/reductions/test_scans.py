"""Scans against eager: every dimension and dtype, what is computed before and after in one kernel, and the rules."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import pytest
import torch

from assay.compiler.entry.dynamo import assay
from assay.compiler.errors import VerifyError
from assay.compiler.ir.loops.index import Int, Symbol
from assay.compiler.ir.loops.kernel import Load, Loop, Reduce, Scan
from assay.compiler.ir.loops.verify import verify
from tests.lowering import assert_same, check, planned, traced

Program = Callable[[torch.Tensor], tuple[torch.Tensor, ...]]


def sample() -> torch.Tensor:
    """With ties, a NaN and signed zeros."""
    x = torch.randn(3, 5, 4, generator=torch.Generator().manual_seed(0))
    x[0, 2, 1] = float("nan")
    x[1] = x[1].round()
    x[2, 0] = -0.0
    return x


def whole(x: torch.Tensor) -> torch.Tensor:
    return (x.nan_to_num() * 3).long()


PROGRAMS: dict[str, Program] = {
    "sum": lambda x: (x.cumsum(0), x.cumsum(1), x.cumsum(-1), x.transpose(0, 2).cumsum(1)),
    "product": lambda x: (x.cumprod(0), x.cumprod(1), x.cumprod(-1)),
    "extrema": lambda x: (*x.cummax(0), *x.cummin(1), *x.cummax(2), *x.transpose(0, 2).cummin(0)),
    "logarithms": lambda x: (x.logcumsumexp(0), x.logcumsumexp(2), (x - torch.inf).logcumsumexp(1)),
    "integers": lambda x: ((x > 0).cumsum(1), whole(x).cumsum(2), whole(x).int().cumprod(0), *whole(x).cummax(1)),
    "dtypes": lambda x: (
        x.cumsum(0, dtype=torch.float64),
        x.cumsum(1, dtype=torch.bfloat16),
        x.double().logcumsumexp(1),
    ),
    "halves": lambda x: (x.bfloat16().cumsum(1), x.half().cumprod(2), *x.bfloat16().cummax(0)),
    "around": lambda x: ((x * 2).cumsum(1) * 3 + x, x.exp().cumsum(-1).flip(-1), x.cumsum(1)[:, 1:] - x[:, :-1]),
    "of scans": lambda x: (x.cumsum(1).cumsum(1), x.cumsum(0).cumsum(1), x.cumsum(1).cummax(2)[0]),
    "and reductions": lambda x: (x.cumsum(1).sum(1), x.softmax(1).cumsum(1), x.sum(2).cumsum(0), x.cumsum(0).mean()),
    "broadcast": lambda x: (x[:, :, 0].cumsum(1)[..., None] * x, x[0, :, 0].cumsum(0)[:, None] * x),
    "of one": lambda x: (x[:1].cumsum(0), x[2:, :1].cumsum(1), *x[:, :, :1].cummax(2), x[:1].cumprod(0)),
    "of none": lambda x: (x[:0].cumsum(0), x[:, :0].cumsum(0)),
    "looked up": lambda x: (x.cumsum(1)[:, [2, 0, 1]], x[[2, 0, 1]].cumsum(0)),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_scan_as_eager(name: str) -> None:
    x = sample()
    schedule = check(PROGRAMS[name], x)
    assert not schedule.counts.fallbacks
    for ours, theirs in zip(torch.compile(PROGRAMS[name], backend=assay)(x), PROGRAMS[name](x), strict=True):
        assert_same(ours, theirs, name)
        signs = ~theirs.isnan()
        if theirs.is_floating_point() and name in ("sum", "of one"):
            assert torch.equal(torch.signbit(ours)[signs], torch.signbit(theirs)[signs])


def test_scan_with_dynamic_sizes() -> None:
    for name in ("sum", "extrema", "around", "and reductions"):
        check(PROGRAMS[name], sample(), mode="symbolic")


@pytest.mark.parametrize("shape", [(3, 700), (700, 300), (40, 70, 90)])
def test_long_scans_as_exact_as_eager(shape: tuple[int, ...]) -> None:
    """In every dimension, in several tiles of lanes and several threads; float32 is no farther from float64."""
    x = torch.randn(shape, generator=torch.Generator().manual_seed(1))

    def every(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tuple(scan for dim in range(x.dim()) for scan in (x.cumsum(dim), *x.cummax(dim)))

    for ours, theirs, exact in zip(torch.compile(every, backend=assay)(x), every(x), every(x.double()), strict=True):
        assert ours.dtype == theirs.dtype
        assert (ours - exact).abs().max() <= (theirs - exact).abs().max()


def test_scans_along_one_dimension_share_a_kernel() -> None:
    schedule = planned(traced(lambda x: (x.cumsum(1), x.cumsum(1) * 2 + x.cumprod(1)), torch.randn(8, 9)))
    assert len(schedule.kernels) == 1


def test_rows_that_a_scan_finds_are_not_read_in_its_order() -> None:
    """Embeddings by positions that count what is no padding: the rows belong to the norm, the count is a kernel."""

    def embedded(ids: torch.Tensor, table: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return (torch.nn.functional.layer_norm(table[(ids != 1).cumsum(1)], (table.shape[1],)),)

    given = torch.randint(0, 4, (3, 16)), torch.randn(20, 32)
    assert len(planned(traced(embedded, *given)).kernels) == 2
    check(embedded, *given)


def test_scans_of_rows_that_are_repeated_share_a_kernel_with_what_reads_them() -> None:
    schedule = planned(traced(lambda x: (x.expand(8, 16).cumsum(1) * 2,), torch.randn(16)))
    assert len(schedule.kernels) == 1


def test_gradients_of_scans_as_eager() -> None:
    for function in (
        lambda x: x.cumsum(1),
        lambda x: x.cumprod(0),
        lambda x: x.cummax(1)[0],
        lambda x: x.logcumsumexp(0),
    ):
        x = torch.rand(6, 7).add(0.5).requires_grad_()
        expected = torch.autograd.grad(function(x).square().sum(), x)[0]
        found = torch.autograd.grad(torch.compile(function, backend=assay)(x).square().sum(), x)[0]
        torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("last", [Int(3), Symbol("i0")])
def test_verify_wants_scans_along_a_loop(last: Int | Symbol) -> None:
    kernel = planned(traced(lambda x: (x.cumsum(1),), torch.randn(3, 5))).kernels[0]
    scan = Scan("sum", Loop("b0", Int(5)), last, Load("in0", Symbol("b0"), torch.float32), torch.float32)
    broken = dataclasses.replace(kernel, stores=(dataclasses.replace(kernel.stores[0], expr=scan),))
    with pytest.raises(VerifyError, match="no loop of the kernel"):
        verify(broken)


def test_verify_wants_no_scan_in_a_reduction() -> None:
    kernel = planned(traced(lambda x: (x.cumsum(1),), torch.randn(3, 5))).kernels[0]
    inner = Scan("sum", Loop("b0", Int(5)), Symbol("i1"), Load("in0", Symbol("b0"), torch.float32), torch.float32)
    outer = Reduce("sum", (Loop("r1_0", Int(2)),), inner, torch.float32)
    broken = dataclasses.replace(kernel, stores=(dataclasses.replace(kernel.stores[0], expr=outer),))
    with pytest.raises(VerifyError, match="beside a reduction"):
        verify(broken)
