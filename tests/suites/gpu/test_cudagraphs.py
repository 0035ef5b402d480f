"""CUDA graphs on a GPU, through `torch.compile(mode="reduce-overhead")`: who owns results, beside eager."""

from __future__ import annotations

import copy
import gc
import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from assay.compiler.journal import reset, totals
from assay.compiler.runtime.recording import pool_layout as packing
from assay.compiler.runtime.recording import recording, workspaces
from assay.compiler.runtime.recording.pool_layout import Event, Segments
from assay.compiler.runtime.recording.recording import CudaTape, Pool, pool_of, recorded_bytes

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


def warm_up() -> None:
    """The pool of the first recording of a process is given up."""
    net = model()
    for _ in range(4):
        trained(net, compiled(net), torch.randn(8, 16, device="cuda"))
    torch._dynamo.reset()
    gc.collect()
    torch.cuda.empty_cache()
    reset()


def added_since(before: dict[tuple[int, ...], int]) -> dict[tuple[int, ...], int]:
    return {pool: size for pool, size in pools().items() if pool not in before}


def recorded_training() -> tuple[Any, Tensor, dict[tuple[int, ...], int]]:
    """A deep network that has been trained, with its input, and the memory of its recordings."""
    net = deep()
    fast = compiled(net)
    x = torch.randn(4096, 256, device="cuda")
    before = pools()
    for _ in range(6):
        trained(net, fast, x)
    net.zero_grad()
    gc.collect()
    assert totals()["recorded"] == 2
    return fast, x, added_since(before)


def test_backward_lies_in_the_memory_of_its_forward() -> None:
    warm_up()
    _fast, x, added = recorded_training()
    assert len(added) == 1
    room = sum(added.values()) - workspaces.bytes_of(0)
    assert room < 1.25 * 8 * 3 * x.nbytes  # what layers keep of their products and norms, at most


def test_the_pool_grows_by_what_was_foretold(monkeypatch: pytest.MonkeyPatch) -> None:
    foretold = list[int]()

    def extension(segments: Segments, events: Sequence[Event]) -> int:
        more = packing.extension(segments, events)
        packed = packing.Packing(segments)
        if more:
            packed.extend(more)
        foretold.append(packed.run(events))
        return more

    monkeypatch.setattr(recording, "extension", extension)
    _fast, _x, added = recorded_training()
    (pool,) = added
    assert len(foretold) == 2
    segments = torch.cuda.memory_snapshot(pool)
    assert sum(each["total_size"] for each in segments if each["segment_type"] == "large") == sum(foretold)


def test_what_cublas_works_in_is_once_in_the_pool_and_nowhere_else(monkeypatch: pytest.MonkeyPatch) -> None:
    net, size, before = deep(), workspaces.bytes_of(0), pools()
    monkeypatch.setattr(workspaces, "_left", set())
    monkeypatch.setattr(workspaces, "_own", {(0, 0), *before})  # graphs of tests before this one are nobody's any more
    fast = compiled(net)
    x = torch.randn(64, 256, device="cuda")
    for _ in range(6):
        net.zero_grad()
        fast(x).square().mean().backward()
    assert totals()["recorded"] == 2
    assert size <= sum(added_since(before).values()) < 1.5 * size
    allocated = torch.cuda.memory_allocated()
    torch._C._cuda_clearCublasWorkspaces()
    assert torch.cuda.memory_allocated() == allocated


def test_what_another_graph_works_in_is_left_to_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is its stream's, from plain calls before."""
    monkeypatch.setattr(workspaces, "_left", set())
    weight, x = torch.randn(4096, 4096, device="cuda"), torch.randn(8, 4096, device="cuda")
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    theirs = torch.cuda.CUDAGraph()
    with torch.cuda.stream(stream):
        for _ in range(3):
            x @ weight
        with torch.cuda.graph(theirs, stream=stream):
            result = x @ weight
    torch.cuda.current_stream().wait_stream(stream)
    net = model()
    fast = compiled(net)
    data = torch.randn(8, 16, device="cuda")
    for _ in range(6):
        trained(net, fast, data)
    assert totals()["recorded"] == 2
    with torch.cuda.stream(stream):
        filled = [torch.full((1 << 20,), 7.0, device="cuda") for _ in range(64)]
        theirs.replay()
    torch.cuda.synchronize()
    assert all(bool((each == 7.0).all()) for each in filled)
    torch.testing.assert_close(result, x @ weight)


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


# ---- one pool for all recordings -------------------------------------------------------------------------------------


def test_memory_for_many_sizes_grows_by_results() -> None:
    """The largest first. What 4096 rows need on their way are 128 MB, what they return is 256 KB."""
    warm_up()
    net = nn.Sequential(nn.Linear(64, 4096), nn.GELU(), nn.LayerNorm(4096), nn.Linear(4096, 16)).cuda()
    fast = compiled(net, dynamic=True)
    before, sizes = pools(), []
    with torch.no_grad():
        for rows in range(4096, 2048, -256):
            x = torch.randn(rows, 64, device="cuda")
            for _ in range(3):
                close(fast(x), net(x))
            sizes.append(sum(added_since(before).values()))
    assert totals()["unrecorded"] == {}
    assert totals()["recorded"] == 8 and len(added_since(before)) == 1
    assert sizes[-1] < 1.3 * sizes[0]


def test_memory_of_training_for_many_sizes_is_that_of_the_largest() -> None:
    warm_up()
    net = deep()
    fast = compiled(net, dynamic=True)
    before, sizes = pools(), []
    for rows in (4096, 3584, 3072, 2560):
        x = torch.randn(rows, 256, device="cuda")
        for _ in range(5):
            trained(net, fast, x)
        net.zero_grad()
        sizes.append(sum(added_since(before).values()))
    gradients = sum(p.numel() * p.element_size() for p in net.parameters())
    assert totals()["unrecorded"] == {}
    assert totals()["recorded"] == 8 and totals()["apart"] == 0 and len(added_since(before)) == 1
    assert sizes[-1] < 1.3 * sizes[0] + 4 * gradients


class Broken(nn.Module):
    """A model with a graph break."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = (nn.Sequential(nn.Linear(32, 32), nn.GELU(), nn.LayerNorm(32)) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        torch._dynamo.graph_break()
        return self.second(x)  # type: ignore[no-any-return]


class Beside:
    """A compiled model beside an eager one that has seen the same calls."""

    def __init__(self) -> None:
        self.net = Broken().cuda()
        self.other = copy.deepcopy(self.net)
        self.fast = compiled(self.net, dynamic=False)
        self.kept: list[tuple[Tensor, Tensor]] = []
        self.waiting: list[tuple[Tensor, Tensor]] = []

    def both(self, x: Tensor) -> tuple[Tensor, Tensor]:
        found = self.fast(x), self.other(x)
        close(*found)
        return found

    def backward(self, pair: tuple[Tensor, Tensor], **kwargs: Any) -> None:
        for result in pair:
            result.square().sum().backward(**kwargs)
        for a, b in zip(self.net.parameters(), self.other.parameters(), strict=True):
            assert a.grad is not None and b.grad is not None
            torch.testing.assert_close(a.grad, b.grad, rtol=1e-3, atol=1e-3)

    def zero(self) -> None:
        self.net.zero_grad()
        self.other.zero_grad()

    def do(self, what: str, rows: int) -> None:
        x = torch.randn(rows, 32, device="cuda")
        if what == "infer":
            with torch.no_grad():
                self.both(x)
        elif what == "infer and keep":
            with torch.no_grad():
                self.kept.append(self.both(x))
        elif what == "train":
            self.zero()
            self.backward(self.both(x))
            self.zero()
        elif what == "train, gradients held":
            pair = self.both(x)
            self.zero()
            self.backward(pair)
        elif what == "add up":
            self.backward(self.both(x))
        elif what == "forward":
            self.waiting.append(self.both(x))
        elif what == "first backward" and self.waiting:
            self.backward(self.waiting.pop(0))
        elif what == "last backward" and self.waiting:
            self.backward(self.waiting.pop())
        elif what == "twice":
            pair = self.both(x)
            self.backward(pair, retain_graph=True)
            self.backward(pair)
        elif what == "drop":
            self.kept.clear()
            self.waiting.clear()
        for pair in (*self.kept, *self.waiting):
            close(*pair)


ORDERS = ["infer", "infer and keep", "train", "train, gradients held", "add up", "forward", "first backward"]
ORDERS += ["last backward", "twice", "drop"]


@pytest.mark.parametrize("seed", range(6))
def test_a_model_with_a_graph_break_is_as_eager_in_all_orders(seed: int) -> None:
    draw, beside = random.Random(seed), Beside()
    for number in range(16):  # until all is recorded
        beside.do(("train", "infer")[number % 2], (8, 24)[number // 2 % 2])
    assert totals()["recorded"] == 12 and totals()["apart"] == 0
    for _ in range(120):
        beside.do(draw.choice(ORDERS), draw.choice((8, 24)))


def test_two_streams() -> None:
    """Functions that are called side by side on two streams, each with results of the other's in flight."""

    w = torch.linalg.qr(torch.randn(512, 512))[0].cuda()

    def heavy(x: Tensor) -> Tensor:
        for _ in range(8):
            x = (x @ w).sin()
        return x

    streams = [torch.cuda.Stream() for _ in range(2)]
    nets = [compiled(lambda x, k=k: heavy(x) + k) for k in range(2)]  # type: ignore[misc]
    xs = [torch.randn(512, 512, device="cuda") for _ in range(2)]
    expected = [heavy(x) + k for k, x in enumerate(xs)]
    torch.cuda.synchronize()
    kept = list[tuple[Tensor, Tensor]]()
    for number in range(40):
        for net, x, stream, right in zip(nets, xs, streams, expected, strict=True):
            with torch.cuda.stream(stream):
                result = net(x)
                kept.append((result if number % 3 else result.clone(), right))
        kept = kept[-(number % 5) :]
    torch.cuda.synchronize()
    for result, right in kept:
        close(result, right)
    assert totals()["recorded"] in (2, 3, 4)


def test_what_was_saved_is_kept_while_another_graph_runs_in_the_memory_of_its_backward() -> None:
    net = deep()
    fast, other = compiled(net), compiled(lambda x: (x @ x.t()).tanh().sum(0))
    x = torch.randn(2048, 256, device="cuda")
    for _ in range(5):
        trained(net, fast, x)
    net.zero_grad()
    with torch.no_grad():
        for _ in range(3):
            expected = other(x).clone()
        eager = twin(net)  # type: ignore[arg-type]
        eager.zero_grad()
    eager(x).square().mean().backward()
    for _ in range(6):
        net.zero_grad()
        loss = fast(x).square().mean()
        with torch.no_grad():
            close(other(x), expected)
        loss.backward()
        for a, b in zip(net.parameters(), eager.parameters(), strict=True):
            close(a.grad, b.grad)  # type: ignore[arg-type]


def test_the_memory_of_a_pool_comes_back_with_its_last_recording() -> None:
    warm_up()
    before = sum(pools().values())
    net = deep()
    fast, other = compiled(net), compiled(lambda x: x.square().sum(0))
    x = torch.randn(4096, 256, device="cuda")
    for _ in range(5):
        trained(net, fast, x)
        other(x)
    assert sum(pools().values()) > before + x.nbytes and recorded_bytes(0) > x.nbytes
    net.zero_grad()
    del fast, other, net
    torch._dynamo.reset()
    gc.collect()
    torch.cuda.empty_cache()
    assert sum(pools().values()) <= before and recorded_bytes(0) == 0


def test_a_recording_that_cuda_refuses_closes_its_pool_and_no_other_graph() -> None:
    pool = Pool(torch.cuda.current_device(), torch.cuda.current_stream().cuda_stream)
    tape, x = CudaTape(pool), torch.ones(4, device="cuda")

    def doubles(args: list[Any]) -> list[Any]:
        return [args[0] * 2]

    def waits(args: list[Any]) -> list[Any]:
        return [args[0] * args[0].sum().item()]

    first: Any = tape.record(doubles, [x], [])

    with pytest.raises(RuntimeError):
        CudaTape(pool).record(waits, [x], [])
    assert pool.is_closed
    reserved = torch.cuda.memory_reserved()
    large = torch.empty(1 << 28, dtype=torch.uint8, device="cuda")
    del large
    torch.cuda.empty_cache()  # which does nothing while the allocator believes that somebody records
    assert torch.cuda.memory_reserved() <= reserved
    tape.replay()
    assert first[0].tolist() == [2.0] * 4
    fast = compiled(lambda x: x * 3)
    for _ in range(4):
        close(fast(x), x * 3)
    assert totals()["recorded"] == 1


def test_the_large_blocks_of_a_recording_lie_in_one_piece() -> None:
    """Gradients of 7 MB, of which a segment of 20 MB holds two: a third of it would be nobody's."""
    net = nn.Sequential(*(nn.Linear(1330, 1330, bias=False) for _ in range(24))).cuda()
    fast, x = compiled(net), torch.randn(4, 1330, device="cuda")
    for _ in range(6):
        net.zero_grad(set_to_none=True)
        fast(x).sum().backward()
    assert totals()["recorded"] == 2
    pool = pool_of(torch.cuda.current_device(), torch.cuda.current_stream().cuda_stream)
    segments = torch.cuda.memory_snapshot(pool.memory.pool())
    large = [(each["total_size"], each["allocated_size"]) for each in segments if each["segment_type"] == "large"]
    taken, live = (sum(sizes) for sizes in zip(*large, strict=True))
    assert live >= sum(weight.nbytes for weight in net.parameters())
    assert taken < 1.15 * live + workspaces.bytes_of(0), large


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.wide, self.narrow, self.norm = nn.Linear(32, 64), nn.Linear(64, 32), nn.LayerNorm(32)

    def forward(self, x: Tensor) -> Any:
        return x + self.narrow(F.gelu(self.wide(self.norm(x))))


@pytest.mark.parametrize("is_early", [True, False])
def test_layers_that_are_compiled_one_by_one_have_a_recording_each(
    is_early: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One graph for all of them, called with the parameters of each by turns; of what it is given only that is copied
    which no recording gave. `is_early`: gradients are dropped before forward, otherwise behind it."""
    copied: list[int] = []
    copy_each = recording.copy_each

    def counted(into: Sequence[Tensor], values: Sequence[Tensor]) -> None:
        copied.append(len(into))
        copy_each(into, values)

    monkeypatch.setattr(recording, "copy_each", counted)
    own, others = ([Layer().cuda() for _ in range(5)] for _ in range(2))
    for layer, other in zip(own, others, strict=True):
        other.load_state_dict(layer.state_dict())
        layer.compile(backend="assay", mode="reduce-overhead")
    recorded = []
    for _ in range(16):
        copied.clear()
        x = torch.randn(8, 32, device="cuda")
        for parts in (own, others):
            value = x
            if is_early:
                for part in parts:
                    part.zero_grad()
            for part in parts:
                value = part(value)
            for part in () if is_early else parts:
                part.zero_grad()
            value.square().sum().backward()
        for layer, other in zip(own, others, strict=True):
            for a, b in zip(layer.parameters(), other.parameters(), strict=True):
                close(a.grad, b.grad)  # type: ignore[arg-type]
        recorded.append(totals()["recorded"])
    assert recorded[-1] == recorded[-4] and recorded[-1] in range(10, 16) and totals()["unrecorded"] == {}
    assert not is_early or sum(copied) <= 3  # the first input, the last tangent, one more that was recorded before


def test_copies_of_a_model_by_turns_have_a_recording_each() -> None:
    nets = [model() for _ in range(3)]
    fast = [compiled(net) for net in nets]
    recorded = []
    for _ in range(20):
        for net, call in zip(nets, fast, strict=True):
            x, other = torch.randn(8, 16, device="cuda"), twin(net)
            net.zero_grad()
            other.zero_grad()
            call(x).square().sum().backward()
            other(x).square().sum().backward()
            for a, b in zip(net.parameters(), other.parameters(), strict=True):
                close(a.grad, b.grad)  # type: ignore[arg-type]
        recorded.append(totals()["recorded"])
    assert recorded[-1] == recorded[-4] and recorded[-1] in range(6, 16) and totals()["unrecorded"] == {}
