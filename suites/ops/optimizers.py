"""The optimizers as batches: two steps of each, in each of its configurations, through torch.compile.

What is compared: the parameters, the whole state of the optimizer, and its error where it refuses.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from assay.harness.batches.sample import Batch, Sample
from assay.harness.observe.observation import seed_all
from assay.suites.ops.database import configurations, optim_db

SHAPES = ((3, 4), (5,), (2, 1, 3))
MATRICES = ((3, 4), (2, 5))
"""For Muon, which takes no others."""
STEPS = 2


def batches() -> Iterator[Batch]:
    """Every batch of the optimizers, in the database's order."""
    for info in optim_db:
        name = f"optim.{info.optim_cls.__name__}"
        make = functools.partial(_samples, info)
        yield Batch(f"{name}.step", name, "infer", make, "torch.compile", ("static",))


def _samples(info: Any, seed: int) -> list[Sample]:
    found = []
    for number, given in enumerate(configurations("cpu", torch.float32, info)):
        seed_all(seed)
        shapes = MATRICES if info.optim_cls is torch.optim.Muon else SHAPES
        parameters = [_parameter(shape, info.only_supports_sparse_grads) for shape in shapes]
        for parameter in parameters if given.kwargs.get("differentiable") else ():
            parameter.requires_grad_(False)  # it is written with gradients on, which autograd refuses for a leaf
        optimizer = info.optim_cls(parameters, **given.kwargs)
        closure = _Loss(parameters) if info.step_requires_closure else None
        run = functools.partial(_stepped, optimizer, closure)
        found.append(Sample(f"{number} {given.desc}".replace("'", ""), run, (parameters,), {}))
    return found


def _parameter(shape: tuple[int, ...], is_sparse: bool) -> Tensor:
    made = torch.nn.Parameter(torch.randn(shape))
    gradient = torch.randn(shape)
    made.grad = gradient.to_sparse() if is_sparse else gradient
    return made


class _Loss:
    """A closure as an optimizer calls it: the loss of its parameters, after backward."""

    def __init__(self, parameters: list[Tensor]) -> None:
        self.parameters = parameters

    def __call__(self) -> Tensor:
        for parameter in self.parameters:
            parameter.grad = None
        with torch.enable_grad():
            loss = torch.stack([(parameter**2).sum() for parameter in self.parameters]).sum()
        loss.backward()
        return loss


def _stepped(optimizer: Any, closure: Callable[[], Tensor] | None, parameters: list[Tensor]) -> Any:
    """Steps, and gives what the optimizer remembers of each parameter."""
    for _ in range(STEPS):
        optimizer.step(closure) if closure is not None else optimizer.step()
    return [dict(optimizer.state[parameter]) for parameter in parameters]
