"""Triton kernels that a program launches itself, beside eager: a stand-in for a GPU's driver has them interpreted."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

from assay.compiler import journal
from assay.compiler.capture.user_code import triton_kernels

triton = pytest.importorskip("triton")
tl = pytest.importorskip("triton.language")
BLOCK = 16


@triton.jit
def add_kernel(x, y, out, count, factor, block: tl.constexpr):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201
    at = tl.program_id(0) * block + tl.arange(0, block)
    total = tl.load(x + at, mask=at < count) + tl.load(y + at, mask=at < count) * factor
    tl.store(out + at, total, mask=at < count)


@triton.jit
def split_kernel(x, low, high, count, block: tl.constexpr):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201
    at = tl.program_id(0) * block + tl.arange(0, block)
    value = tl.load(x + at, mask=at < count)
    tl.store(low + at, value - 1, mask=at < count)
    tl.store(high + at, value + 1, mask=at < count)


class _Driver:
    """As much of a driver as tells what kernels are compiled for."""

    def get_current_target(self) -> Any:
        return triton.backends.compiler.GPUTarget("cuda", 90, 32)


def _interpreted(kernel: Any, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> None:
    from triton.runtime.interpreter import InterpretedFunction

    InterpretedFunction(kernel.fn).run(*args, grid=grid, warmup=warmup, **kwargs)


@pytest.fixture(autouse=True)
def _kernels_run(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    before = triton.runtime.driver._active
    triton.runtime.driver.set_active(_Driver())
    monkeypatch.setattr("torch.utils._triton.has_triton", lambda: True)
    monkeypatch.setattr(triton.runtime.jit.JITFunction, "run", _interpreted)
    torch._dynamo.reset()
    journal.reset()
    yield
    triton.runtime.driver._active = before
    torch._dynamo.reset()


def add(x: Tensor, y: Tensor, out: Tensor, factor: float = 1.0) -> None:
    add_kernel[(triton.cdiv(x.numel(), BLOCK),)](x, y, out, x.numel(), factor, block=BLOCK)


def sum_of_kernels(x: Tensor, y: Tensor) -> Tensor:
    doubled = x * 2
    out = torch.empty_like(x)
    add(doubled, y, out, 0.5)
    return out.sin() + doubled


def writes_an_input(x: Tensor, y: Tensor) -> Tensor:
    add(x, y, x)
    return x * y


def writes_a_part_of_an_input(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    part = x[3:20]
    add(part, y[:17], part)
    return part * 2, x.sum()


def writes_what_a_view_shows(x: Tensor, y: Tensor) -> Tensor:
    held = x + 1
    early = held.view(-1)[5:]
    add(x, y, held)
    return early * 3


def writes_two_parts_of_one(x: Tensor, y: Tensor) -> Tensor:
    both = torch.empty(2, x.numel(), device=x.device)
    split_kernel[(triton.cdiv(x.numel(), BLOCK),)](x, both[0], both[1], x.numel(), block=BLOCK)
    return both * y


def reads_what_it_wrote_before(x: Tensor, y: Tensor) -> Tensor:
    out = torch.zeros_like(x)
    for _ in range(3):
        add(out, y, out)
    return out


PROGRAMS = (
    sum_of_kernels,
    writes_an_input,
    writes_a_part_of_an_input,
    writes_what_a_view_shows,
    writes_two_parts_of_one,
    reads_what_it_wrote_before,
)


def inputs(count: int = 37) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(count)
    return torch.randn(count, generator=generator), torch.randn(count, generator=generator)


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("program", PROGRAMS)
def test_launches_are_part_of_the_graph(program: Callable[..., Any], dynamic: bool) -> None:
    fast = torch.compile(program, backend="assay", dynamic=dynamic, fullgraph=True)
    for count in (37, 37, 50):
        ours, theirs = inputs(count), inputs(count)
        for found, expected in zip(flat(fast(*ours)), flat(program(*theirs)), strict=True):
            torch.testing.assert_close(found, expected)
            assert found.stride() == expected.stride()
        for mine, other in zip(ours, theirs, strict=True):
            torch.testing.assert_close(mine, other)
            assert mine._version == other._version
    assert journal.totals()["eager_graphs"] == 0


def flat(value: Any) -> tuple[Tensor, ...]:
    return value if isinstance(value, tuple) else (value,)


class Scaled(torch.autograd.Function):
    """x + 3 y by a kernel, and its gradients by another launch of it."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, y: Tensor) -> Tensor:
        out = torch.empty_like(x)
        add(x, y, out, 3.0)
        return out

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor]:
        scaled = torch.empty_like(gradient)
        add(torch.zeros_like(gradient), gradient.contiguous(), scaled, 3.0)
        return gradient, scaled


def test_launches_in_a_function_with_a_backward_of_its_own() -> None:
    def program(x: Tensor, y: Tensor) -> Tensor:
        return (Scaled.apply(x.exp(), y) * x).sum()  # type: ignore[no-untyped-call]

    fast = torch.compile(program, backend="assay", fullgraph=True)
    for _ in range(2):
        ours, theirs = inputs(), inputs()
        for value in (*ours, *theirs):
            value.requires_grad_()
        torch.testing.assert_close(fast(*ours), program(*theirs))
        fast(*ours).backward()
        program(*theirs).backward()
        for mine, other in zip(ours, theirs, strict=True):
            torch.testing.assert_close(mine.grad, other.grad)
    assert journal.totals()["eager_graphs"] == 0


def test_a_launch_is_kept_for_no_other_process() -> None:
    """Kernels are known by their numbers in this process."""
    torch.compile(writes_an_input, backend="assay", options={"warm": True})(*inputs())
    assert journal.totals()["uncached"] == {"it launches a Triton kernel of the user's": 1}


def test_launches_of_one_kernel_are_one_operator() -> None:
    torch.compile(reads_what_it_wrote_before, backend="assay")(*inputs())
    before = sum(map(len, triton_kernels._operators.values()))
    torch._dynamo.reset()
    torch.compile(reads_what_it_wrote_before, backend="assay")(*inputs())
    assert sum(map(len, triton_kernels._operators.values())) == before


def test_the_grid_follows_the_configuration_that_was_chosen() -> None:
    class Tuned:
        configs = (triton.Config({"block": 16}), triton.Config({"block": 64}))

    grid = triton_kernels._grid_of(Tuned(), ((4, 1, 1), (1, 1, 1)))
    assert grid({"block": 16, "count": 64}) == (4, 1, 1) and grid({"block": 64, "count": 64}) == (1, 1, 1)
