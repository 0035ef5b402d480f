"""Programs of `DTensor`s over two processes: results, placements and gradients are eager's, and nothing runs in eager.

python -m torch.distributed.run --standalone --nproc-per-node 2 -m assay.suites.distributed.dtensors
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import DTensor, Placement, Replicate, Shard, distribute_tensor

from assay.compiler import journal

Program = tuple[Callable[..., Tensor], tuple[Tensor, ...]]


def programs(mesh: DeviceMesh) -> dict[str, Program]:
    """Each a function and its inputs, which require gradients."""

    def placed(placement: Placement, *shape: int) -> Tensor:
        return distribute_tensor(torch.randn(shape), mesh, [placement]).requires_grad_()

    return {
        "elementwise": (lambda x: (x.sin() * 2).relu(), (placed(Shard(0), 8, 4),)),
        "product of rows": (lambda x, w: (x @ w).relu(), (placed(Shard(0), 8, 4), placed(Replicate(), 4, 6))),
        "product of columns": (lambda x, w: (x @ w).relu(), (placed(Replicate(), 8, 4), placed(Shard(1), 4, 6))),
        "redistributed": (lambda x: x.redistribute(mesh, [Replicate()]) * 2, (placed(Shard(0), 8, 4),)),
        "local part": (lambda x: x.to_local() * 2, (placed(Shard(0), 8, 4),)),
        "made of local parts": (
            lambda x: DTensor.from_local(x, mesh, [Shard(0)]) * 2,
            (torch.randn(3, 4, requires_grad=True),),
        ),
    }


def differences(function: Callable[..., Tensor], inputs: tuple[Tensor, ...]) -> list[str]:
    """In what the compiled function differs from eager."""
    own = [value.detach().clone().requires_grad_() for value in inputs]
    eagers, ours = function(*inputs), torch.compile(function, backend="assay")(*own)
    tangent = torch.ones_like(eagers)
    eagers.backward(tangent)
    ours.backward(tangent)
    pairs = {"the result": (ours, eagers)}
    pairs |= {f"gradient {n}": (x.grad, y.grad) for n, (x, y) in enumerate(zip(own, inputs, strict=True))}  # type: ignore[misc]
    return [name for name, (one, other) in pairs.items() if not _is_same(one, other)]


def _is_same(one: Any, other: Any) -> bool:
    if type(one) is not type(other):
        return False
    if isinstance(other, DTensor):
        return one.placements == other.placements and _is_same(one.to_local(), other.to_local())
    return one is other or torch.allclose(one, other)


def main() -> None:
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    for name, (function, inputs) in programs(init_device_mesh("cpu", (dist.get_world_size(),))).items():
        torch._dynamo.reset()
        journal.reset()
        found, counted = differences(function, inputs), journal.totals()
        if found or counted["eager_graphs"] or counted["cuts"]:
            raise SystemExit(f"{name}: {', '.join(found)} differ; in eager {counted['eager']}")
        print(f"{name}: as eager")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
