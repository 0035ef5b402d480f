"""Parts of tensors put into others, turned, padded and looked up, against eager: dtypes, layouts, scalars, nothing."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch.nn import functional

from assay.compiler.entry.dynamo import assay
from tests.lowering import check, error_of, executable, planned, traced

aten = torch.ops.aten
Program = Callable[..., tuple[torch.Tensor, ...]]
DTYPES = (torch.float32, torch.bfloat16, torch.int64, torch.uint8, torch.bool, torch.complex64)


def matrix(dtype: torch.dtype, *shape: int) -> torch.Tensor:
    return (torch.randn(*shape, generator=torch.Generator().manual_seed(1)) * 3).abs().to(dtype)


PROGRAMS: dict[str, Program] = {
    "rot90": lambda x: tuple(torch.rot90(x, k, dims) for k in range(-1, 5) for dims in ([0, 1], [-1, 0])),
    "diag_embed": lambda x: (
        *(torch.diag_embed(x, offset) for offset in (-2, 0, 1)),
        torch.diag_embed(x, 1, 0, -2),
        torch.diag_embed(x, -1, 2, 1),
    ),
    "padded": lambda x: (functional.pad(x, (1, 2)), functional.pad(x, (1, -1, 0, 2), value=1.0), aten.zero(x)),
    "slices with steps": lambda x: (
        torch.slice_scatter(x, x[:, :2], 1, 0, 4, 2),
        torch.slice_scatter(x, x[:, :1], 1, 3, 9, 3),
        torch.slice_scatter(x, x[:, :0], 1, 2, 2),
        aten.slice_backward(x[:, :2], [3, 7], 1, 1, 5, 3),
    ),
    "diagonals": lambda x: (torch.diagonal_scatter(x, x[:, 0], 0), torch.diagonal_scatter(x, x[0, :0], 9)),
}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", PROGRAMS)
def test_indexing_as_eager(name: str, dtype: torch.dtype) -> None:
    for x in (matrix(dtype, 3, 4), matrix(dtype, 4, 3).t()):
        assert not check(PROGRAMS[name], x).counts.fallbacks


def test_indexing_of_symbolic_sizes_as_eager() -> None:
    for name in ("rot90", "diag_embed", "slices with steps"):
        check(PROGRAMS[name], matrix(torch.float32, 3, 4), mode="symbolic")


def test_indexing_of_nothing_as_eager() -> None:
    empty, index = torch.randn(0, 3), torch.empty(0, dtype=torch.int64)
    schedule = check(
        lambda x, i: (x.flip(0), x.roll(1, 0), torch.diag_embed(x), x.gather(0, i[:, None]), x[:, i], x.cumsum(0)),
        *(empty, index),
    )
    assert not schedule.counts.fallbacks
    assert not check(lambda x: (functional.pad(x, (0, 0, 1, 2), value=3.0), torch.rot90(x)), empty).counts.fallbacks


@pytest.mark.parametrize("dtype", DTYPES[:-2])
def test_cross_product_as_eager(dtype: torch.dtype) -> None:
    def function(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        turned = torch.linalg.cross(x.transpose(1, 2), y[:1].transpose(1, 2).contiguous(), dim=-1)
        return torch.linalg.cross(x, y, dim=1), torch.linalg.cross(x[:1], y, dim=-2), turned

    bound = 5e-2 if dtype is torch.bfloat16 else 1e-5  # which eager rounds in between
    schedule = check(function, matrix(dtype, 4, 3, 5), matrix(dtype, 2, 4, 3, 5)[1], rtol=bound, atol=20 * bound)
    assert not schedule.counts.fallbacks


# ---- scalars ---------------------------------------------------------------------------------------------------------

SCALARS: dict[str, Program] = {
    "gather": lambda x, i: (x.gather(0, i), x.gather(-1, i[None])),
    "index_select": lambda x, i: (x.index_select(0, i), x.index_select(-1, i[None])),
    "scatter": lambda x, i: (x.scatter(0, i, x * 2), x.scatter(0, i[None], 0.0), x.scatter_add(0, i, x)),
    "index_add": lambda x, i: (x.index_add(0, i, x), x.index_add(0, i[None], x)),
    "index_copy": lambda x, i: (x.index_copy(0, i, x + 1), x.index_copy(0, i[None], x)),
    "index_fill": lambda x, i: (x.index_fill(0, i, 0), x.index_fill(0, i[None], 0)),
    "scans": lambda x, i: (x.cumsum(0), x.cumprod(-1) if not x.is_complex() else x * 2),
    "first of the highest": lambda x, i: (*x.real.cummax(0), *x.real.cummin(0)),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.complex64])
@pytest.mark.parametrize("name", SCALARS)
def test_indexing_of_scalars_as_eager(name: str, dtype: torch.dtype) -> None:
    assert not check(SCALARS[name], torch.tensor(2.5).to(dtype), torch.tensor(0)).counts.fallbacks


@pytest.mark.parametrize("name", ["gather", "index_select", "scatter", "index_copy", "index_fill"])
def test_scalar_position_out_of_range_raises_as_eager(name: str) -> None:
    for which in (0, 1):
        function: Program = lambda x, i: (SCALARS[name](x, i)[which],)  # noqa: B023
        run = executable(planned(traced(function, torch.tensor(2.5), torch.tensor(0))))
        for wrong in (torch.tensor(1), torch.tensor(-3)):
            expected = error_of(function, torch.tensor(2.5), wrong)
            assert expected is not None
            assert error_of(run, [torch.tensor(2.5), wrong]) is expected


# ---- binary cross entropy, which rejects what is no probability ------------------------------------------------------


def cross_entropies(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
    losses = (functional.binary_cross_entropy(x, y, reduction=each) for each in ("none", "mean", "sum"))
    return (*losses, functional.binary_cross_entropy(x, y, weight=y + 1))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_binary_cross_entropy_as_eager(dtype: torch.dtype) -> None:
    x = torch.rand(4, 5, generator=torch.Generator().manual_seed(2))
    x[0, :2] = torch.tensor([0.0, 1.0])
    bounds = {} if dtype is not torch.bfloat16 else {"rtol": 3e-2, "atol": 3e-2}
    assert not check(cross_entropies, x.to(dtype), x.flip(0).to(dtype), **bounds).counts.fallbacks


def test_binary_cross_entropy_of_what_is_no_probability_raises_as_eager() -> None:
    compiled = torch.compile(lambda x, y: functional.binary_cross_entropy(x, y), backend=assay)
    right = torch.rand(3)
    for wrong in (1.5, -0.1, float("nan")):
        with pytest.raises(RuntimeError, match="between 0 and 1"):
            compiled(torch.tensor([0.5, wrong, 0.2]), right)
    torch.testing.assert_close(compiled(right, right), functional.binary_cross_entropy(right, right))


@pytest.mark.parametrize(
    "program",
    [
        lambda x, n: x[: max(n, 0)] * x[: max(n, 0)],
        lambda x, n: torch.cat([x[: max(n, 0)] * 2, x]) * 3,
        lambda x, n: functional.pad(x[: max(n, 0)] * 2, (1, 2)).exp(),
        lambda x, n: (x[: max(n, 0)] * 2).diag_embed(1) * 3,
    ],
)
def test_part_that_turns_out_to_be_empty_as_eager(program: Callable[[torch.Tensor, int], torch.Tensor]) -> None:
    compiled = torch.compile(program, backend=assay, dynamic=True)
    for n in (3, 2, 0, -1, 4):
        slopes = []
        for function in (program, compiled):
            x = torch.arange(5.0).requires_grad_()
            result = function(x, n)
            result.backward(torch.ones_like(result))
            slopes.append((result.detach(), x.grad))
        torch.testing.assert_close(*slopes)
