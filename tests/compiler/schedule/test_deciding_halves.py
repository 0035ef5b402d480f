"""Halves whose last bit decides a result are rounded, also where the operator reads them in float32 or float64."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

DECIDED: dict[str, Callable[[Tensor], Tensor]] = {
    "sin": Tensor.sin,
    "tan": Tensor.tan,
    "floor": Tensor.floor,
    "ceil": Tensor.ceil,
    "round": Tensor.round,
    "frac": Tensor.frac,
    "fmod": lambda x: x.fmod(1.0),
    "remainder": lambda x: x.remainder(1.0),
    "floor_divide": lambda x: x // 0.5,
    "greater": lambda x: x > x[0],
    "equal": lambda x: x == x.flip(0),
    "sign of a difference": lambda x: (x - x[3]).sign(),
    "difference": lambda x: (x - x[3]) != 0,
    "logical_not": lambda x: (x - x[3]).logical_not(),
    "nonzero": lambda x: (x - x[3]).nonzero(),
    "count_nonzero": lambda x: (x - x[3]).count_nonzero(),
    "argmax": Tensor.argmax,
    "argmin": Tensor.argmin,
    "places of maxima": lambda x: x.view(8, -1).max(1).indices,
    "median": lambda x: x.view(8, -1).median(1).indices,
    "mode": lambda x: x.view(8, -1).mode(1).values,
    "cummax": lambda x: x.cummax(0).indices,
    "sort": lambda x: x.sort(stable=True).indices,
    "unique": Tensor.unique,
    "isin": lambda x: torch.isin(x, x[:4]),
    "bucketize": lambda x: torch.bucketize(x, torch.arange(90.0, dtype=x.dtype)),
    "int64": Tensor.long,
    "uint8": lambda x: x.to(torch.uint8),
    "index": lambda x: torch.arange(100)[x.long().clamp(0, 99)],
    "one_hot": lambda x: torch.nn.functional.one_hot(x.long().clamp(0, 90), 91),
    "selection": lambda x: x[x > x[7]].numel() * x.new_ones(1),
}


def halves(x: Tensor, y: Tensor, dtype: torch.dtype) -> Tensor:
    return x.to(dtype) * y.to(dtype) + 0.3


@pytest.mark.parametrize("wide", [torch.float32, torch.float64], ids=["float32", "float64"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=["bfloat16", "float16"])
@pytest.mark.parametrize("name", DECIDED)
def test_fuse_rounds_halves_that_decide(name: str, dtype: torch.dtype, wide: torch.dtype) -> None:
    def f(x: Tensor, y: Tensor) -> Tensor:
        return DECIDED[name](halves(x, y, dtype).to(wide))

    compiled = torch.compile(f, backend="assay")
    generator = torch.Generator().manual_seed(1)
    for _ in range(3):
        x, y = torch.rand(64, generator=generator) * 8, torch.rand(64, generator=generator) * 10 + 1
        torch.testing.assert_close(compiled(x, y), f(x, y), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=["bfloat16", "float16"])
def test_fuse_rounds_halves_that_are_returned_in_float32(dtype: torch.dtype) -> None:
    """Whoever sorts what is returned meets eager's ties."""
    x, y = torch.rand(64) * 8, torch.rand(64) * 10
    compiled = torch.compile(lambda x, y: halves(x, y, dtype).float(), backend="assay")
    assert torch.equal(compiled(x, y), halves(x, y, dtype).float())


def test_fuse_leaves_halves_in_float32_up_to_a_sum() -> None:
    """What nobody decides by is as near to float64 as float32 is, not as halves are."""
    x, y = torch.rand(4096) * 8, torch.rand(4096) * 10
    compiled = torch.compile(lambda x, y: (halves(x, y, torch.bfloat16).float() * 3).sum(), backend="assay")
    exact = (halves(x, y, torch.bfloat16).double() * 3).sum()
    unrounded = ((x.bfloat16().double() * y.bfloat16().double() + 0.3) * 3).sum()
    assert abs(compiled(x, y) - unrounded) < abs(exact - unrounded)
