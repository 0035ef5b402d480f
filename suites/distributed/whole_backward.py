"""Training over two processes with whole backwards compiled: hooks that communicate, DDP, FSDP2.

python -m torch.distributed.run --standalone --nproc-per-node 2 -m assay.suites.distributed.whole_backward --way hooks

`--transport nccl` trains on a GPU for each process.

hooks         gradients are averaged in post-accumulate hooks, in eager's order
ddp           the reducer is C++'s, which the engine does not hand over: backwards run in eager
ddp_python    DDP's reducer in Python: one backward is compiled
fsdp          `fully_shard` on each layer
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
import torch._dynamo.config
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

from assay.compiler import journal
from assay.compiler.entry.compiled_autograd import compiled_autograd

WAYS = ("hooks", "ddp", "ddp_python", "fsdp")
STEPS = 5
BOUND = 1e-5

Log = list[tuple[int, ...]]


def _model() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.LayerNorm(16), nn.Linear(16, 4))


def _device() -> torch.device:
    """Where this process computes: with NCCL on a GPU of its own."""
    is_on_gpu = dist.get_backend() == "nccl"
    return torch.device("cuda", dist.get_rank()) if is_on_gpu else torch.device("cpu")


def _averaging(log: Log) -> Callable[[Tensor], None]:
    """A hook that averages a gradient over the processes, and notes whose it was."""

    def average(parameter: Tensor) -> None:
        assert parameter.grad is not None
        dist.all_reduce(parameter.grad)
        parameter.grad /= dist.get_world_size()
        log.append(tuple(parameter.shape))

    return average


def _shared(way: str, log: Log) -> nn.Module:
    model = _model().to(_device())
    if way == "hooks":
        for parameter in model.parameters():
            parameter.register_post_accumulate_grad_hook(_averaging(log))
    if way.startswith("ddp"):
        torch._dynamo.config.optimize_ddp = "python_reducer" if way == "ddp_python" else True
        return DistributedDataParallel(model)
    if way == "fsdp":
        for layer in model:
            if isinstance(layer, nn.Linear):
                fully_shard(layer)
        fully_shard(model)
    return model


def train(way: str, ambient: Callable[[], AbstractContextManager[Any]]) -> tuple[list[float], Log]:
    """The losses, and the order in which gradients were averaged."""
    log: Log = []
    model = _shared(way, log)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    torch.manual_seed(10 + dist.get_rank())
    losses = []
    with ambient():
        for _ in range(STEPS):
            loss = model(torch.randn(6, 8).to(_device())).square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.item())
    return losses, log


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--way", choices=WAYS, required=True)
    parser.add_argument("--transport", choices=("gloo", "nccl"), default="gloo")
    given = parser.parse_args()
    way = given.way
    dist.init_process_group(given.transport)
    if given.transport == "nccl":
        torch.cuda.set_device(_device())
    losses, log = train(way, nullcontext)
    ours, our_log = train(way, compiled_autograd)
    off = max(abs(one - other) for one, other in zip(losses, ours, strict=True))
    counted = journal.totals()
    if off > BOUND or log != our_log or bool(counted["backwards"]) == (way == "ddp"):
        raise SystemExit(f"{way}: losses are off by {off}, {our_log} for {log}, {counted}")
    print(f"{way} is as eager, {counted['backwards']} backwards compiled")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
