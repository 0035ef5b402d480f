"""Dropout on a GPU: the masks that kernels compute are those that ATen draws, in every mode, and in recordings."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from assay.compiler import journal
from assay.compiler.runtime import philox

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU"),
]
SHAPES = (
    (1,),
    (7,),
    (1023,),
    (64, 100),
    (33, 130),
    (4096, 1025),
    (3, 5, 1 << 20),
    (1 << 24,),
    ((1 << 22) + 2,),
    ((1 << 22) + 1,),
)


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    torch._dynamo.reset()
    journal.reset()
    yield
    torch._dynamo.reset()


@pytest.mark.parametrize("share", [0.1, 0.5, 0.999])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64])
@pytest.mark.parametrize("shape", SHAPES)
def test_dropout_mask_is_that_of_aten(shape: tuple[int, ...], dtype: torch.dtype, share: float) -> None:
    x = torch.ones(shape, dtype=dtype, device="cuda")
    most = philox.width_of(dtype, x.device)
    assert most is not None
    threads = philox.threads_of(x.numel(), x.device)
    calls = philox.calls_of(x.numel(), threads)
    torch.manual_seed(-3)
    torch.rand(5, device="cuda")
    (key,) = philox.reserve_numbers([0], x.device)
    expected = torch.ops.aten.native_dropout.default(x, share, True)[1]
    (after,) = philox.reserve_numbers([0], x.device)
    assert (after - key).tolist() == [0, calls]
    width = philox.width_for(x.numel(), most, 0)
    found = philox.dropout_mask(key, shape, philox.limit_of(1 - share, dtype), threads, width)
    assert torch.equal(found, expected)


def residual(x: Tensor, r: Tensor) -> Tensor:
    return F.dropout(x, 0.1) + r


def rows(x: Tensor, r: Tensor) -> Tensor:
    return F.layer_norm(F.dropout(x.relu(), 0.3) + r, (x.shape[-1],)).softmax(-1)


def across(x: Tensor, r: Tensor) -> Tensor:
    return (F.dropout(x, 0.4) * 2).t().contiguous() + (F.dropout(r, 0.2).sum(0, keepdim=True) + F.dropout(x)).t()


def beside_others(x: Tensor, r: Tensor) -> Tensor:
    return F.dropout(F.dropout(x, 0.2) + torch.rand_like(r), 0.5) + F.dropout(r)


@pytest.mark.parametrize("mode", [None, "reduce-overhead"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("shape", [(64, 128), (37, 129), (2048, 770), (3, 40000)])
@pytest.mark.parametrize("function", [residual, rows, across, beside_others])
def test_dropout_and_its_gradients_are_those_of_eager(
    function: Callable[..., Tensor], shape: tuple[int, ...], dtype: torch.dtype, mode: str | None
) -> None:
    compiled = torch.compile(function, backend="assay", mode=mode, dynamic=False)
    inputs = [torch.randn(shape, dtype=dtype, device="cuda", requires_grad=True) for _ in range(2)]
    tangent = torch.randn_like(function(*inputs))
    for seed in range(7):
        found, expected = (run(f, inputs, tangent, seed) for f in (compiled, function))
        for ours, theirs in zip(found, expected, strict=True):
            close(ours, theirs)


def close(ours: Tensor, theirs: Tensor) -> None:
    """Between operators eager rounds to bfloat16, and kernels do not; an element dropped or not differs by far more."""
    bound = (0.05 if ours.dtype is torch.bfloat16 else 1e-5) * theirs.abs().max().item()
    torch.testing.assert_close(ours, theirs, rtol=0, atol=bound)


def run(function: Callable[..., Tensor], inputs: list[Tensor], tangent: Tensor, seed: int) -> list[Any]:
    torch.manual_seed(seed)
    result = function(*inputs)
    gradients = torch.autograd.grad(result, inputs, tangent)
    return [result, *gradients, torch.rand(3, device="cuda")]


def test_dropout_keeps_no_mask_and_waits_for_nothing() -> None:
    compiled = torch.compile(residual, backend="assay", options={"cudagraphs": False})
    x, r = (torch.randn(4096, 4096, device="cuda", requires_grad=True) for _ in range(2))
    compiled(x, r).sum().backward()
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.set_sync_debug_mode("error")
    try:
        result = compiled(x, r)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert torch.cuda.memory_allocated() - before <= result.nbytes + 4096
    assert journal.totals()["fallbacks"] == {}


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.Dropout(0.2), nn.Linear(256, 64), nn.Dropout(0.1))

    def forward(self, x: Tensor) -> Tensor:
        return x + self.net(x)


@pytest.mark.parametrize("options", [{}, {"memory_budget": 0.3}, {"cudagraphs": True}, {"numerics": "exact"}])
@pytest.mark.parametrize("is_in_region", [False, True])
def test_blocks_train_as_in_eager(is_in_region: bool, options: dict[str, Any]) -> None:
    blocks = nn.ModuleList(Block() for _ in range(3)).cuda()
    own = copy.deepcopy(blocks)

    def step(blocks: nn.ModuleList, x: Tensor) -> Tensor:
        for block in blocks:
            x = checkpoint(block, x, use_reentrant=False) if is_in_region else block(x)
        return x.square().mean()

    compiled = torch.compile(step, backend="assay", options=options)
    for seed in range(5):
        losses = []
        for function, net in ((compiled, blocks), (step, own)):
            torch.manual_seed(seed)
            losses.append(function(net, torch.randn(32, 64, device="cuda")))
            losses[-1].backward()
        torch.testing.assert_close(*losses)
        for ours, theirs in zip(blocks.parameters(), own.parameters(), strict=True):
            torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-3, atol=1e-5)


def test_gradients_of_gradients_read_the_same_mask() -> None:
    def penalty(x: Tensor) -> Tensor:
        return (F.dropout(x.sin(), 0.3) ** 2).sum()

    x = torch.randn(64, 64, device="cuda", requires_grad=True)
    found = []
    for function in (torch.compile(penalty, backend="assay"), penalty):
        torch.manual_seed(4)
        (first,) = torch.autograd.grad(function(x), x, create_graph=True)
        (second,) = torch.autograd.grad(first.square().sum(), x)
        found.append((first, second))
    torch.testing.assert_close(*found)


def test_a_graph_that_the_user_records_draws_at_each_replay() -> None:
    compiled = torch.compile(lambda x: F.dropout(x, 0.5), backend="assay", options={"cudagraphs": False})
    x = torch.ones(4096, device="cuda")
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        compiled(x)
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = compiled(x)
    found = []
    for _ in range(3):
        graph.replay()
        found.append(result.clone())
    shares = [(mask != 0).float().mean().item() for mask in found]
    assert not torch.equal(found[0], found[1]) and not torch.equal(found[1], found[2])
    assert all(abs(share - 0.5) < 0.05 for share in shares)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("numel", [26, 64])
@pytest.mark.parametrize("offset", range(9))
def test_dropout_of_what_begins_within_its_memory(offset: int, numel: int, dtype: torch.dtype) -> None:
    """ATen reads as many elements at a time as their address allows, and a thread draws for those that it reads."""
    x = torch.ones(100, dtype=dtype, device="cuda")[offset : offset + numel].view(2, -1)
    torch.manual_seed(7)
    expected = F.dropout(x, 0.5)
    torch.manual_seed(7)
    assert torch.equal(torch.compile(lambda x: F.dropout(x, 0.5), backend="assay")(x), expected)
