"""Losses and gradients of steps over several processes, held to eager's:

    torchrun --nproc-per-node 2 -m assay.suites.distributed.check --way ddp,fsdp,tensor --backend assay

Each process compares what it has of every gradient. Exits with 1 where one differs by more than rounding explains.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator

import torch
import torch.distributed as dist
from torch import Tensor

from assay.suites.distributed.training import TINY, WAYS, begin, gradients_of, prepared, step_of

STEPS = 4
RATE = 0.1
SHARE = 1e-4
"""Of a tensor's largest number, in float32 after some steps."""


def trained(way: str, backend: str, device: str) -> list[dict[str, Tensor]]:
    """The loss and the gradients of each of some steps of gradient descent."""
    torch._dynamo.reset()
    model, words = prepared(way, backend, TINY, device, begin(device))
    step, found = step_of(model, words), []
    for _ in range(STEPS):
        loss = step()
        found.append({"loss": loss, **{name: gradient.clone() for name, gradient in gradients_of(model)}})
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.sub_(parameter.grad, alpha=RATE)  # type: ignore[arg-type]
    return found


def differences(way: str, ours: list[dict[str, Tensor]], eager: list[dict[str, Tensor]]) -> Iterator[str]:
    """What differs, one line each."""
    for number, (mine, theirs) in enumerate(zip(ours, eager, strict=True)):
        if mine.keys() != theirs.keys():
            yield f"{way}, step {number}: gradients of {sorted(mine.keys() ^ theirs.keys())} are on one side only"
        for name in mine.keys() & theirs.keys():
            off, largest = (mine[name] - theirs[name]).abs().max().item(), theirs[name].abs().max().item()
            if not off <= SHARE * max(largest, 1e-3):
                yield f"{way}, step {number}: {name} is off by {off:.3g} where the largest number is {largest:.3g}"


def main() -> None:
    reader = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    reader.add_argument("--way", default=",".join(WAYS))
    reader.add_argument("--backend", default="assay")
    given = reader.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    found = []
    for way in given.way.split(","):
        ours, eager = (trained(way, backend, device) for backend in (given.backend, "eager"))
        found += list(differences(way, ours, eager))
    print("\n".join(found) or f"rank {dist.get_rank()}: {given.way} are as eager")
    dist.destroy_process_group()
    sys.exit(bool(found))


if __name__ == "__main__":
    main()
