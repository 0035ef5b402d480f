"""Triton kernels that a program launches itself, on a GPU beside eager.

The kernels are those of `tests/compiler/capture/user_code/test_user_triton_kernels.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from assay.compiler import journal
from tests.compiler.capture.user_code.test_user_triton_kernels import PROGRAMS, flat, inputs

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU"),
]


@pytest.mark.parametrize("mode", ["default", "reduce-overhead"])
@pytest.mark.parametrize("program", PROGRAMS)
def test_launches_are_part_of_the_graph(program: Callable[..., Any], mode: str) -> None:
    torch._dynamo.reset()
    journal.reset()
    fast = torch.compile(program, backend="assay", mode=mode, fullgraph=True)
    for count in (37, 37, 37, 37, 50):
        ours, theirs = ([value.cuda() for value in inputs(count)] for _ in range(2))
        for found, expected in zip(flat(fast(*ours)), flat(program(*theirs)), strict=True):
            torch.testing.assert_close(found, expected)
        for mine, other in zip(ours, theirs, strict=True):
            torch.testing.assert_close(mine, other)
            assert mine._version == other._version
    assert journal.totals()["eager_graphs"] == 0
