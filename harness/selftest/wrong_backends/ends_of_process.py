"""Backends that end their process or never come back, on some programs."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Sequence
from typing import Any

from torch import fx

from assay.harness.selftest.wrong_backends.registry import Run, wrong


@wrong("ends of process")
def dies_on_matmul(graph: fx.GraphModule, example_inputs: Sequence[object]) -> Run:
    """A matrix product takes the process with it."""
    if "matmul" in graph.code or "@" in graph.code:
        os.kill(os.getpid(), signal.SIGSEGV)
    return graph.forward


@wrong("ends of process")
def dies_at_call_6(graph: fx.GraphModule, example_inputs: Sequence[object]) -> Run:
    """Call 6 takes the process with it."""
    count: list[int] = []

    def run(*args: Any) -> Sequence[Any]:
        count.append(1)
        if len(count) == 6:
            os.kill(os.getpid(), signal.SIGSEGV)
        return graph.forward(*args)  # type: ignore[no-any-return]

    return run


compiled_here: set[str] = set()


@wrong("ends of process")
def dies_on_a_second_program(graph: fx.GraphModule, example_inputs: Sequence[object]) -> Run:
    """What was compiled before in this process is the fault."""
    compiled_here.add(graph.code)
    if len(compiled_here) > 1:
        os.kill(os.getpid(), signal.SIGSEGV)
    return graph.forward


def never_ends_on_sort(graph: fx.GraphModule, example_inputs: Sequence[object]) -> Run:
    """Sorting hangs."""
    if "sort" in graph.code:
        time.sleep(3600)
    return graph.forward
