"""Backends with one fault each, for tests of what finds them: Dynamo's graph run by eager, and the fault."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, fx

Compiled = Callable[..., Any]


def drops_write_back(gm: fx.GraphModule, example_inputs: Sequence[object]) -> Compiled:
    """What the graph writes to its inputs never reaches the caller's tensors."""
    return lambda *args: gm.forward(*(arg.clone() if isinstance(arg, Tensor) else arg for arg in args))


def copies_views(gm: fx.GraphModule, example_inputs: Sequence[object]) -> Compiled:
    """A view that the graph returns is a copy."""
    return lambda *args: tuple(
        out.clone() if isinstance(out, Tensor) and out._is_view() else out for out in gm.forward(*args)
    )


def dies_on_matmul(gm: fx.GraphModule, example_inputs: Sequence[object]) -> Compiled:
    """A matrix product takes the process with it."""
    if "matmul" in gm.code or "@" in gm.code:
        os.kill(os.getpid(), signal.SIGSEGV)
    return gm.forward


compiled_here: set[str] = set()


def dies_on_a_second_program(gm: fx.GraphModule, example_inputs: Sequence[object]) -> Compiled:
    """What was compiled before in this process is the fault."""
    compiled_here.add(gm.code)
    if len(compiled_here) > 1:
        os.kill(os.getpid(), signal.SIGSEGV)
    return gm.forward


def never_ends_on_sort(gm: fx.GraphModule, example_inputs: Sequence[object]) -> Compiled:
    """Sorting hangs."""
    if "sort" in gm.code:
        time.sleep(3600)
    return gm.forward


def right(gm: fx.GraphModule, example_inputs: Sequence[object]) -> Compiled:
    """No fault."""
    return gm.forward


def loses_a_rounding(gm: fx.GraphModule, example_inputs: Sequence[object]) -> Compiled:
    """The first result is off in its third digit."""

    def run(*args: object) -> tuple[object, ...]:
        first, *rest = gm.forward(*args)
        is_real = isinstance(first, Tensor) and first.is_floating_point() and not first._is_view()
        return (torch.mul(first, 1.003) if is_real else first, *rest)

    return run


def keeps_the_first_numbers(gm: fx.GraphModule, example_inputs: Sequence[object]) -> Compiled:
    """The Python numbers, and tensors of no dimensions, of the first call are those of every call."""
    kept: list[object] = []

    def run(*args: object) -> object:
        kept[:] = kept or [arg.clone() if isinstance(arg, Tensor) else arg for arg in args]
        pairs = zip(args, kept, strict=True)
        return gm.forward(*(arg if isinstance(arg, Tensor) and arg.dim() else first for arg, first in pairs))

    return run
