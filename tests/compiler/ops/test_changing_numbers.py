"""Numbers that change from call to call, or that data decides: all but what reads the data is generated."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch
from torch import Tensor
from torch._dynamo import config

from assay.compiler.entry.dynamo import assay
from compiler import journal

DTYPES = (torch.float32, torch.float64, torch.bfloat16)


def scaled(x: Tensor, number: float) -> Tensor:
    return torch.tanh(x * number) + x / number


def scaled_by_its_sum(x: Tensor) -> Tensor:
    return torch.tanh(x * 1.5) * x.sum().item() + x


def chosen(x: Tensor) -> tuple[Tensor, Tensor]:
    y = torch.tanh(x * 1.5) + x
    picked = y[y > 0]
    return picked * 2, y + picked.shape[0]


def written_after_it_is_read(x: Tensor) -> Tensor:
    number = x.sum().item()
    x.mul_(2)
    return x * number


@pytest.fixture(autouse=True)
def data_is_captured() -> Iterator[None]:
    torch._dynamo.reset()
    journal.reset()
    with config.patch(capture_scalar_outputs=True, capture_dynamic_output_shape_ops=True):
        yield


def fallbacks() -> dict[str, int]:
    found = journal.totals()["fallbacks"]
    assert isinstance(found, dict)
    return found


@pytest.mark.parametrize("dtype", DTYPES)
def test_lower_generates_with_a_changing_float(dtype: torch.dtype) -> None:
    compiled = torch.compile(scaled, backend=assay)
    for number in (0.5, 0.75, -1.25, 3.0):
        x = torch.randn(8, 16).to(dtype)
        torch.testing.assert_close(compiled(x, number), scaled(x, number))
    assert not fallbacks() and journal.totals()["compiles"] == 2


def test_lower_generates_a_changing_float_with_gradients() -> None:
    compiled = torch.compile(scaled, backend=assay)
    for number in (0.5, 0.75, -1.25):
        x = torch.randn(8, 16, requires_grad=True)
        (ours,) = torch.autograd.grad(compiled(x, number).sum(), x)
        (eager,) = torch.autograd.grad(scaled(x, number).sum(), x)
        torch.testing.assert_close(ours, eager)
    assert not fallbacks()


def test_lower_keeps_an_item_out_of_what_is_generated() -> None:
    x = torch.randn(8, 16)
    torch.testing.assert_close(torch.compile(scaled_by_its_sum, backend=assay)(x), scaled_by_its_sum(x))
    assert not fallbacks()


@pytest.mark.parametrize("shift", (0.0, 100.0, -100.0))
def test_lower_generates_beside_a_mask(shift: float) -> None:
    x = torch.randn(8, 16) + shift
    for ours, eager in zip(torch.compile(chosen, backend=assay)(x), chosen(x), strict=True):
        torch.testing.assert_close(ours, eager)
    assert journal.totals()["nodes_generated"] and fallbacks()["aten.index.Tensor"] == 1


@pytest.mark.parametrize("function", (written_after_it_is_read,))
def test_lower_reads_an_item_before_its_tensor_is_written(function: Callable[[Tensor], Tensor]) -> None:
    ours, eager = torch.arange(6.0), torch.arange(6.0)
    torch.testing.assert_close(torch.compile(function, backend=assay)(ours), function(eager))
    torch.testing.assert_close(ours, eager)
