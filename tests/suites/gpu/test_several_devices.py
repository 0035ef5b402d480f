"""Several GPUs in one process, and streams of the user's own.

Needs two NVIDIA GPUs, but for streams: `pytest -m gpu tests/suites/gpu/test_several_devices.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU"),
]
two_devices = pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two NVIDIA GPUs")
CALLS = 8
"""Enough that a graph which waits for its host is recorded."""


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    torch._dynamo.reset()
    before = torch.cuda.current_device()
    yield
    assert torch.cuda.current_device() == before, "a call leaves the current device as it is"


def compiled(function: Callable[..., Any], **options: object) -> Callable[..., Any]:
    given: dict[str, Any] = {"fallback": "error", **options}
    return torch.compile(function, backend="assay", options=given)


def several(x: Tensor, w: Tensor) -> Tensor:
    """Kernels of one element at a time and of rows, one that takes memory of its own, and a library's call."""
    return F.softmax(F.gelu(x) @ w, -1) * x.sum() + torch.cumsum(x, -1)


def close(found: Tensor, expected: Tensor) -> None:
    """Sums of float32 come in other orders: an element may be off by what the largest is rounded by."""
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-5 * float(expected.detach().abs().max()))


def given(device: int, size: int = 64, requires_grad: bool = False) -> tuple[Tensor, Tensor]:
    generator = torch.Generator(f"cuda:{device}").manual_seed(device)
    made = [torch.randn(size, size, device=f"cuda:{device}", generator=generator) for _ in range(2)]
    return made[0].requires_grad_(requires_grad), made[1].requires_grad_(requires_grad)


@two_devices
@pytest.mark.parametrize("order", [(0, 1, 0), (1, 0, 1)], ids=str)
@pytest.mark.parametrize("cudagraphs", [False, None, True], ids=["plain", "by time", "recorded"])
def test_a_function_is_called_with_tensors_of_each_device(order: tuple[int, ...], cudagraphs: bool | None) -> None:
    """While the first is the current one."""
    run = compiled(several, cudagraphs=cudagraphs)
    for device in order:
        for _ in range(CALLS):
            x, w = given(device)
            found, expected = run(x, w), several(x, w)
            assert found.device == expected.device == torch.device("cuda", device)
            torch.testing.assert_close(found, expected)


@two_devices
def test_addresses_and_sizes_that_need_other_code_do_on_each_device() -> None:
    run = torch.compile(several, backend="assay", dynamic=True)
    for device in (1, 0):
        for size in (64, 33):
            x, w = given(device, size)
            memory = torch.empty(size * size + 1, device=x.device)
            unaligned = memory[1:].view(size, size).copy_(x)
            torch.testing.assert_close(run(unaligned, w), several(x, w))


def trained(model: nn.Module, step: Callable[..., Tensor], x: Tensor) -> list[Tensor]:
    found = []
    for _ in range(CALLS):
        model.zero_grad(set_to_none=True)
        loss = step(x).square().mean()
        loss.backward()
        found += [loss.detach().clone(), *(p.grad.clone() for p in model.parameters() if p.grad is not None)]
    return found


@two_devices
@pytest.mark.parametrize("is_current", [False, True], ids=["the first is current", "its own is current"])
@pytest.mark.parametrize("cudagraphs", [False, True], ids=["plain", "recorded"])
def test_a_model_on_the_second_device_trains(is_current: bool, cudagraphs: bool) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 128), nn.GELU(), nn.LayerNorm(128), nn.Linear(128, 8)).to("cuda:1")
    x = torch.randn(32, 64, device="cuda:1")
    with torch.cuda.device(int(is_current)):
        found = trained(model, compiled(model, cudagraphs=cudagraphs), x)
        torch.testing.assert_close(found, trained(model, model, x))


@two_devices
def test_masks_of_dropout_are_of_the_devices_own_generator() -> None:
    def drop(x: Tensor) -> Tensor:
        return F.dropout(x, 0.5) * 2

    run = compiled(drop)
    for device in (1, 0, 1):
        x = torch.ones(1 << 14, device=f"cuda:{device}")
        states = []
        for function in (run, drop):
            torch.cuda.manual_seed_all(7)
            states.append((function(x), *(torch.cuda.get_rng_state(d) for d in (0, 1))))
        for ours, eagers in zip(*states, strict=True):
            assert torch.equal(ours, eagers)


@two_devices
def test_tiles_are_measured_on_the_kernels_own_device(tmp_path: Any) -> None:
    x, w = given(1, 512)
    run = compiled(several, tune=True, cache=str(tmp_path), warm=False)
    close(run(x, w), several(x, w))


@two_devices
def test_inputs_of_two_devices_in_one_graph() -> None:
    def moved(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        first, second = x.exp() * 2, y.exp() * 2
        return first, second, (first.to(y.device) + second).sin()

    x, _ = given(0, requires_grad=True)
    y, _ = given(1, requires_grad=True)
    run = compiled(moved)
    for _ in range(CALLS):
        found, expected = run(x, y), moved(x, y)
        assert [value.device for value in found] == [value.device for value in expected]
        torch.testing.assert_close(found, expected)
        ours, eagers = (torch.autograd.grad([v.sum() for v in values], [x, y]) for values in (found, expected))
        torch.testing.assert_close(ours, eagers)


@two_devices
def test_what_eager_refuses_of_two_devices_is_refused() -> None:
    def added(x: Tensor, y: Tensor) -> Tensor:
        return x * 2 + y

    x, y = given(0)[0], given(1)[0]
    with pytest.raises(RuntimeError) as eagers:
        added(x, y)
    with pytest.raises(RuntimeError, match="device") as ours:
        torch.compile(added, backend="assay")(x, y)
    assert issubclass(ours.type, eagers.type)


@two_devices
def test_tensors_made_on_the_current_device_are_on_the_one_that_is_current_at_the_call() -> None:
    def made(x: Tensor) -> tuple[Tensor, Tensor]:
        return x * 2, torch.ones(4, device="cuda") + 1

    run = torch.compile(made, backend="assay")
    x = torch.ones(4, device="cuda:0")
    for device in (0, 1, 0):
        with torch.cuda.device(device):
            found = run(x)
        assert [value.device.index for value in found] == [0, device]
        torch.testing.assert_close(found[1], torch.full((4,), 2.0, device=f"cuda:{device}"))


@pytest.mark.parametrize("cudagraphs", [False, True], ids=["plain", "recorded"])
def test_work_goes_to_the_stream_of_the_user(cudagraphs: bool) -> None:
    """What a call reads is written on the stream just before it, after enough work that another stream would be early;
    what it returns is read there."""
    run, stream = compiled(several, cudagraphs=cudagraphs), torch.cuda.Stream()
    x, w = given(0, 512)
    run(x, w)  # compiled on the default stream
    late = torch.empty_like(x)
    busy = torch.randn(4096, 4096, device="cuda")
    torch.cuda.synchronize()
    for number in range(CALLS):
        expected = several(x + number, w)
        torch.cuda.synchronize()
        late.zero_()
        torch.cuda.synchronize()
        with torch.cuda.stream(stream):
            for _ in range(4):
                busy @ busy
            late.copy_(x + number)
            found = run(late, w) * 1
        stream.synchronize()
        close(found, expected)


def test_backward_runs_on_the_stream_of_its_forward() -> None:
    x, w = given(0, 256, requires_grad=True)
    run, stream = compiled(several), torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(CALLS):
            ours = torch.autograd.grad(run(x, w).square().sum(), [x, w])
    torch.cuda.current_stream().wait_stream(stream)
    for found, expected in zip(ours, torch.autograd.grad(several(x, w).square().sum(), [x, w]), strict=True):
        close(found, expected)
