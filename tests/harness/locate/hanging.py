"""Backends of which a call of `program` never ends: in Python, in compiled code, or with the whole process."""

from __future__ import annotations

import collections
import itertools
import os
import signal
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, fx


def program(x: Tensor) -> Tensor:
    return torch.tanh(x) * 2


def _when_called(happens: Callable[[], None]) -> Callable[..., Any]:
    """A backend under which that happens in each call of `program`; other functions are as eager."""

    def backend(gm: fx.GraphModule, example_inputs: Sequence[object]) -> Callable[..., Any]:
        has_tanh = bool(gm.graph.find_nodes(op="call_function", target=torch.tanh))

        def run(*args: Any) -> Any:
            if has_tanh:
                happens()
            return gm.forward(*args)

        return run

    return backend


def _sleeps() -> None:
    while True:
        time.sleep(0.1)


def _counts() -> None:
    """Never comes back to the interpreter, so that no signal is handled."""
    collections.deque(itertools.repeat(1), maxlen=0)


in_python = _when_called(_sleeps)
in_compiled_code = _when_called(_counts)
by_a_signal = _when_called(lambda: os.kill(os.getpid(), signal.SIGKILL))
