"""Loops that ask which iteration they are: written out, bit for bit as eager, zeros' signs and NaN too."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from assay.compiler.codegen.cpp.kernel import emit_kernel
from assay.compiler.entry.dynamo import assay
from tests.lowering import planned, traced

SPECIAL = torch.tensor([-0.0, 0.0, torch.nan, torch.inf, -torch.inf, 1e-42, -1.5, 3.0])


def padded_parts(*parts: Tensor) -> tuple[Tensor, ...]:
    """The sum of the parts, each padded with zeros to its place along a dimension."""
    shape = (parts[0].shape[0], len(parts), parts[0].shape[1])
    spread = [torch.ops.aten.select_backward(part, shape, 1, index) for index, part in enumerate(parts)]
    whole = spread[-1]
    for other in reversed(spread[:-1]):
        whole = whole + other
    return (whole * 2,)


def special_parts(count: int, dtype: torch.dtype) -> list[Tensor]:
    drawn = torch.Generator().manual_seed(count)
    return [SPECIAL[torch.randint(8, (5, 16), generator=drawn)].to(dtype) for _ in range(count)]


def run(function: Callable[..., tuple[Tensor, ...]], *args: Tensor) -> tuple[Tensor, ...]:
    compiled = torch.compile(function, backend=assay, options={"fallback": "error"})
    result: tuple[Tensor, ...] = compiled(*args)
    return result


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("count", [2, 3, 16])
def test_padded_parts_are_eagers_bits(count: int, dtype: torch.dtype) -> None:
    parts = special_parts(count, dtype)
    (ours,), (theirs,) = run(padded_parts, *parts), padded_parts(*parts)
    assert torch.equal(ours.isnan(), theirs.isnan())
    assert torch.equal(torch.nan_to_num(ours), torch.nan_to_num(theirs))
    assert torch.equal(ours.signbit() & ~ours.isnan(), theirs.signbit() & ~theirs.isnan())


def test_each_part_is_read_in_its_own_iteration() -> None:
    (kernel,) = planned(traced(padded_parts, *(torch.randn(64, 16) for _ in range(16)))).kernels
    text = emit_kernel(kernel)
    assert "?" not in text and "==" not in text
    assert text.count("+ 0.0f") == 16


def test_a_loop_that_is_asked_once_stays() -> None:
    def one_part(part: Tensor) -> tuple[Tensor, ...]:
        return (torch.ops.aten.select_backward(part, (64, 16, 16), 1, 3) * 2,)

    part = torch.randn(64, 16)
    (kernel,) = planned(traced(one_part, part)).kernels
    assert "== " in emit_kernel(kernel)
    assert torch.equal(run(one_part, part)[0], one_part(part)[0])


def test_comparisons_of_positions_are_decided() -> None:
    """Positions that data give stay; those of the loop alone are known when the loop is written out."""

    def program(x: Tensor, chosen: Tensor) -> tuple[Tensor, ...]:
        place = torch.arange(4)[:, None]
        shifted = torch.where(place == 0, x, torch.where(place == 1, -x, torch.where(place == 3, x * 2, chosen)))
        return (torch.where(place != 2, shifted, chosen),)

    x, chosen = torch.randn(4, 40), torch.randn(4, 40)
    (kernel,) = planned(traced(program, x, chosen)).kernels
    assert "==" not in emit_kernel(kernel) and "!=" not in emit_kernel(kernel)
    assert torch.equal(run(program, x, chosen)[0], program(x, chosen)[0])
