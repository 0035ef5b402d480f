"""Cases whose rows a cluster gives as a single process does, and some that end the worker that runs them."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, fx

from assay.harness.case import case
from tests.harness.cluster.dying import MARKERS


def doubles_later_calls(gm: fx.GraphModule, example_inputs: Sequence[object]) -> Callable[..., Any]:
    """A backend that is wrong from the second call on."""
    calls: list[int] = []

    def run(*args: Any) -> Any:
        calls.append(1)
        return tuple(y * min(len(calls), 2) for y in gm.forward(*args))

    return run


def sine(x: Tensor) -> Tensor:
    return x.sin()


@case(modes=("infer",))
def plain() -> Any:
    return sine, (torch.randn(3),), {}


@case(modes=("infer",))
def kills_once() -> Any:
    _kill_the_worker_unless((Path(os.environ[MARKERS]) / "killed").exists())
    return sine, (torch.randn(3),), {}


@case(modes=("infer",))
def kills_always() -> Any:
    _kill_the_worker_unless(False)
    return sine, (torch.randn(3),), {}


def _kill_the_worker_unless(is_done: bool) -> None:
    if not is_done:
        (Path(os.environ[MARKERS]) / "killed").touch()
        os.kill(os.getppid(), signal.SIGKILL)
