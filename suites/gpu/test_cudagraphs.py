"""CUDA graphs on a GPU, through `torch.compile(mode="reduce-overhead")`: who owns results, beside eager."""

from __future__ import annotations

import copy
import gc
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from compiler.journal import reset, totals

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU"),
]


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    torch._dynamo.reset()
    torch.manual_seed(0)
    reset()
    yield
    torch._dynamo.reset()


def compiled(function: Callable[..., Any], **kwargs: Any) -> Callable[..., Any]:
    return torch.compile(function, backend="assay", mode="reduce-overhead", **kwargs)  # type: ignore[no-any-return]


def model(p: float = 0.0) -> nn.Sequential:
    return nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Dropout(p), nn.LayerNorm(32), nn.Linear(32, 4)).cuda()


def twin(module: nn.Sequential) -> nn.Sequential:
    return copy.deepcopy(module)


def close(a: Tensor, b: Tensor) -> None:
    torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)


def test_results_that_are_kept() -> None:
    net = model().eval()
    fast = compiled(net)
    xs = [torch.randn(8, 16, device="cuda") for _ in range(12)]
    with torch.no_grad():
        kept = [fast(x) for x in xs]
        for x, result in zip(xs, kept, strict=True):
            close(result, net(x))
    assert totals()["recorded"] == 2 and totals()["unrecorded"] == {}


@pytest.mark.parametrize("set_to_none", [True, False])
@pytest.mark.parametrize("p", [0.0, 0.3])
def test_training(p: float, set_to_none: bool) -> None:
    """Losses, gradients and weights over steps, the loss being kept until the next; random numbers are eager's."""
    net = model(p)
    other = twin(net)
    fast = compiled(net)
    ours, theirs = (torch.optim.SGD(module.parameters(), lr=0.1) for module in (net, other))
    for number in range(10):
        x = torch.randn(8, 16, device="cuda")
        losses = []
        for module, optimizer in ((fast, ours), (other, theirs)):
            torch.manual_seed(number)
            optimizer.zero_grad(set_to_none=set_to_none)
            loss = F.mse_loss(module(x), x[:, :4])
            loss.backward()
            optimizer.step()
            losses.append(loss)
        close(*losses)
        for a, b in zip(net.parameters(), other.parameters(), strict=True):
            close(a, b)
            assert a.grad is not None and b.grad is not None
            close(a.grad, b.grad)
    assert totals()["recorded"] in (2, 3, 4)


def test_gradients_that_add_up_over_calls() -> None:
    net = model()
    other, fast = twin(net), compiled(net)
    for _ in range(4):
        for _ in range(3):
            x = torch.randn(8, 16, device="cuda")
            for module in (fast, other):
                module(x).square().sum().backward()
        for a, b in zip(net.parameters(), other.parameters(), strict=True):
            close(a.grad, b.grad)  # type: ignore[arg-type]
        net.zero_grad()
        other.zero_grad()


def test_two_calls_before_their_backward_and_a_backward_twice() -> None:
    net = model()
    other, fast = twin(net), compiled(net)
    for number in range(8):
        x, y = (torch.randn(8, 16, device="cuda") for _ in range(2))
        for module in (fast, other):
            loss = module(x).square().sum() + (module(y) * 3).sum()
            loss.backward(retain_graph=number % 2 == 1)
            if number % 2:
                loss.backward()
        for a, b in zip(net.parameters(), other.parameters(), strict=True):
            close(a.grad, b.grad)  # type: ignore[arg-type]
        net.zero_grad()
        other.zero_grad()


def test_weights_that_are_replaced_and_written() -> None:
    net = model().eval()
    first: Any = net[0]
    fast = compiled(net)
    x = torch.randn(8, 16, device="cuda")
    with torch.no_grad():
        for number in range(16):
            if number % 5 == 4:
                first.weight.data = torch.randn_like(first.weight)
            if number % 3 == 2:
                first.bias.add_(1)
            close(fast(x), net(x))


def test_buffers_are_updated_once_a_call() -> None:
    net = nn.Sequential(nn.Linear(16, 8), nn.BatchNorm1d(8)).cuda()
    other, fast = twin(net), compiled(net)
    for _ in range(6):
        x = torch.randn(8, 16, device="cuda")
        close(fast(x), other(x))
        for a, b in zip(net.buffers(), other.buffers(), strict=True):
            close(a, b)


def test_random_numbers_are_eagers() -> None:
    def draw(x: Tensor) -> Tensor:
        return F.dropout(x, 0.5) + torch.rand_like(x)

    fast, x = compiled(draw), torch.ones(1000, device="cuda")
    torch.manual_seed(3)
    ours = [fast(x).clone() for _ in range(5)]
    torch.manual_seed(3)
    theirs = [draw(x) for _ in range(5)]
    assert all(map(torch.equal, ours, theirs)) and totals()["recorded"] == 1


def test_sizes_that_change() -> None:
    net = model().eval()
    fast = compiled(net, dynamic=True)
    with torch.no_grad():
        for _ in range(3):
            for rows in range(2, 14):
                x = torch.randn(rows, 16, device="cuda")
                close(fast(x), net(x))


def test_another_stream_and_a_recording_of_the_users_own() -> None:
    net = model().eval()
    fast = compiled(net)
    x = torch.randn(8, 16, device="cuda")
    with torch.no_grad():
        for _ in range(4):
            expected = fast(x).clone()
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            close(fast(x), expected)
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            result = fast(x)
        x.mul_(2)
        graph.replay()
        close(result, net(x))


def test_a_number_that_a_program_writes_down_is_recorded() -> None:
    """It is made on the host and copied; masks of attention are made of such."""

    def masked(x: Tensor, mask: Tensor) -> Tensor:
        return x + torch.where(mask, torch.tensor(0.0, device="cuda", dtype=x.dtype), torch.finfo(x.dtype).min)

    def assigned(x: Tensor, mask: Tensor) -> Tensor:
        y = x * 2
        y[:, 0] = 3
        return y * mask

    x, mask = torch.ones(4, 4, device="cuda"), torch.ones(4, 4, device="cuda").tril().bool()
    for function in (masked, assigned):
        reset()
        fast = compiled(function)
        for _ in range(4):
            close(fast(x, mask), function(x, mask))
        assert totals()["recorded"] == 1 and not totals()["unrecorded"]


def test_what_is_not_recorded_says_why() -> None:
    def mixed(x: Tensor, y: Tensor) -> Tensor:
        return x * 2 + y.to(x.device)

    fast = compiled(mixed)
    x, y = torch.ones(4, device="cuda"), torch.ones(4)
    for _ in range(4):
        close(fast(x, y), mixed(x, y))
    assert totals()["unrecorded"] == {"a tensor that it is given is on cpu, other tensors are on cuda:0": 1}

    def written(x: Tensor) -> Tensor:
        return x.add_(1) * 2

    fast = compiled(written)
    for number in range(4):
        close(fast(x), (x + 1 - 1) * 2)
        assert x[0].item() == number + 2


def test_memory_comes_back() -> None:
    def grown() -> int:
        net = model()
        fast = compiled(net)
        for _ in range(5):
            fast(torch.randn(4096, 16, device="cuda")).sum().backward()
            net.zero_grad()
        del fast, net
        torch._dynamo.reset()
        gc.collect()
        return torch.cuda.memory_allocated()

    grown()
    before = grown()
    assert grown() <= before


def deep() -> nn.Sequential:
    layers = [nn.Sequential(nn.Linear(256, 256), nn.GELU(), nn.LayerNorm(256)) for _ in range(8)]
    return nn.Sequential(*layers).cuda()


def pools() -> dict[tuple[int, ...], int]:
    """The memory of recordings, in bytes."""
    found = dict[tuple[int, ...], int]()
    for each in torch.cuda.memory_snapshot():
        pool = tuple(each["segment_pool_id"])
        if pool != (0, 0):
            found[pool] = found.get(pool, 0) + each["total_size"]
    return found


def trained(net: nn.Module, fast: Any, x: Tensor) -> None:
    """A step of both; gradients are alike."""
    other = twin(net)  # type: ignore[arg-type]
    for module in (net, other):
        module.zero_grad()
    fast(x).square().mean().backward()
    other(x).square().mean().backward()
    for a, b in zip(net.parameters(), other.parameters(), strict=True):
        close(a.grad, b.grad)  # type: ignore[arg-type]


def test_backward_lies_in_the_memory_of_its_forward() -> None:
    first = model()
    for _ in range(4):  # the first recording of a process takes the workspace of libraries too, 32 MB on an H200
        trained(first, compiled(first), torch.randn(8, 16, device="cuda"))
    reset()
    net = deep()
    fast = compiled(net)
    x = torch.randn(4096, 256, device="cuda")
    before = pools()
    for _ in range(6):
        trained(net, fast, x)
    net.zero_grad()
    gc.collect()
    added = {pool: size for pool, size in pools().items() if pool not in before}
    assert totals()["recorded"] == 2 and len(added) == 1
    assert sum(added.values()) < 1.25 * 8 * 3 * x.nbytes  # what layers keep of their products and norms, at most


def test_saved_values_outlive_the_call_that_recorded_them() -> None:
    net = deep()
    fast = compiled(net)
    x = torch.randn(512, 256, device="cuda")
    for _ in range(5):
        trained(net, fast, x)
    other = twin(net)
    net.zero_grad()
    loss = fast(x).square().mean()
    torch._dynamo.reset()
    del fast
    gc.collect()
    torch.cuda.empty_cache()
    filled = [torch.full((1 << 20,), 7.0, device="cuda") for _ in range(64)]
    loss.backward()
    other.zero_grad()
    other(x).square().mean().backward()
    for a, b in zip(net.parameters(), other.parameters(), strict=True):
        close(a.grad, b.grad)  # type: ignore[arg-type]
    del filled
