"""Optimizers out of `pytorch-optimizer`: one compiled step, with all that it keeps of each parameter."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from assay.harness.case import Case, Made
from assay.suites.libraries.row import row

SHAPES = ((3, 4), (5,), (2, 1, 3))

OPTIMIZERS: dict[str, Mapping[str, Any]] = {
    "AdaBelief": {},
    "AdaBound": {},
    "AdamP": {},
    "AdaNorm": {},
    "Adan": {},
    "AdEMAMix": {},
    "ADOPT": {},
    "Amos": {},
    "DAdaptAdam": {},
    "DiffGrad": {},
    "Grams": {},
    "Lamb": {},
    "LARS": {},
    "Lion": {},
    "MADGRAD": {},
    "NovoGrad": {},
    "PNM": {},
    "Prodigy": {},
    "QHAdam": {},
    "RAdam": {"degenerated_to_sgd": True},
    "Ranger": {},
    "ScheduleFreeAdamW": {},
    "SGDP": {},
    "Shampoo": {"preconditioning_compute_steps": 1},
    "SOAP": {"precondition_frequency": 1},
    "StableAdamW": {},
    "Tiger": {},
    "Yogi": {},
}
"""Class and settings of each optimizer."""


def _made(name: str, settings: Mapping[str, Any]) -> Made:
    import pytorch_optimizer

    parameters = [torch.nn.Parameter(torch.randn(shape)) for shape in SHAPES]
    for parameter in parameters:
        parameter.grad = torch.randn(parameter.shape)
    optimizer = _copied_whole(getattr(pytorch_optimizer, name))(parameters, **settings)
    for group in optimizer.param_groups:
        group["capturable"] = True  # Dynamo puts it there, behind every backend
    return functools.partial(_stepped, optimizer), (parameters,), {}


def _copied_whole(kind: type[torch.optim.Optimizer]) -> type[torch.optim.Optimizer]:
    """The optimizer with all its attributes copied where it is copied: torch's copies leave those of subclasses out."""
    return type(kind.__name__, (kind,), {"__getstate__": _everything, "__setstate__": _put_back})


def _everything(optimizer: Any) -> dict[str, Any]:
    return dict(vars(optimizer))


def _put_back(optimizer: Any, everything: dict[str, Any]) -> None:
    vars(optimizer).update(everything)


def _stepped(optimizer: Any, parameters: list[Tensor]) -> list[dict[str, Any]]:
    """One step; what the optimizer keeps of each parameter afterwards."""
    optimizer.step()
    return [dict(optimizer.state[parameter]) for parameter in parameters]


optimizers: list[Case] = [
    row("pytorch_optimizer", name, functools.partial(_made, name, settings), modes=("infer",), tags=("optimizer",))
    for name, settings in OPTIMIZERS.items()
]
