"""Activations in the host's memory: which are, that gradients stay, and what of a GPU's memory that frees."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from assay.compiler.errors import OptionError
from assay.compiler.options import Options

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")
LAYERS, WIDTH = 6, 1024


def model(x: Tensor, w: Tensor) -> Tensor:
    for _ in range(LAYERS):
        x = F.dropout(F.gelu(x @ w), 0.1) @ w.t()
    return x.square().mean()


def leaves(device: str, rows: int) -> tuple[Tensor, Tensor]:
    torch.manual_seed(0)
    made = (torch.randn(rows, WIDTH), torch.randn(WIDTH, WIDTH).div_(WIDTH**0.5))
    x, w = (value.to(device).requires_grad_() for value in made)
    return x, w


def compiled(offload: bool) -> Callable[..., Tensor]:
    torch._dynamo.reset()
    return torch.compile(model, backend="assay", dynamic=False, options={"offload": offload, "fallback": "error"})


def test_nothing_moves_on_the_cpu() -> None:
    x, w = leaves("cpu", 8)
    found = []
    for offload in (False, True):
        torch.manual_seed(1)
        found.append(torch.autograd.grad(compiled(offload)(x, w), (x, w)))
    assert all(map(torch.equal, *found))


@pytest.mark.parametrize("value", [1, "yes", None])
def test_an_offload_that_is_no_bool_is_refused(value: object) -> None:
    with pytest.raises(OptionError, match="offload"):
        Options.of({"offload": value}, None)


@pytest.mark.gpu
@needs_gpu
@pytest.mark.parametrize("order", [1, 2])
def test_gradients_of_any_order_and_twice_over_a_kept_graph(order: int) -> None:
    x, w = leaves("cuda", 4096)
    found: list[list[Tensor]] = []
    for offload in (False, True):
        torch.manual_seed(1)
        value = compiled(offload)(x, w)
        first = list(torch.autograd.grad(value, (x, w), retain_graph=True, create_graph=order == 2))
        again = list(torch.autograd.grad(value, (x, w), retain_graph=order == 2))
        if order == 2:
            again += torch.autograd.grad(sum(each.square().sum() for each in first), (x, w))  # type: ignore[arg-type]
        found.append([*first, *again])
    torch.cuda.synchronize()
    for plain, away in zip(*found, strict=True):
        torch.testing.assert_close(away, plain, rtol=1e-4, atol=1e-5 * plain.abs().max().item())


@pytest.mark.gpu
@needs_gpu
def test_a_gpu_keeps_a_few_activations_at_a_time() -> None:
    x, w = leaves("cuda", 1 << 15)
    peaks = []
    for offload in (False, True):
        function = compiled(offload)
        for _step in range(2):
            torch.cuda.synchronize()
            torch.cuda.reset_peak_memory_stats()
            function(x, w).backward()
            torch.cuda.synchronize()
            x.grad = w.grad = None
        peaks.append(torch.cuda.max_memory_allocated())
    assert peaks[1] < 0.6 * peaks[0], [f"{size / 1e6:.0f} MB" for size in peaks]
