"""Memory that grows with each call is told from what a program keeps once."""

from __future__ import annotations

import os

import pytest
import torch

from assay.harness.calls.clone import Call
from assay.harness.observe import leaks


@pytest.mark.parametrize(("until", "grows"), [(leaks.CALLS, False), (1000, True)])
def test_leaks_are_of_what_never_ends(until: int, grows: bool) -> None:
    """A cache that fills is looked at twice, and has filled by then."""
    kept: list[torch.Tensor] = []

    def invoke(call: Call) -> None:
        if len(kept) < until:
            kept.append(torch.zeros(1 << 18))

    found = leaks.growth_bytes(invoke, lambda: Call(lambda: None, (), {}))
    assert leaks.grows(found, 0) is grows


@pytest.mark.parametrize(("count", "is_told"), [(1, False), (leaks.ALL_CALLS, True)])
def test_leaks_are_what_each_call_leaves_open(count: int, is_told: bool) -> None:
    """What is opened once, for all calls, is none."""
    before = leaks.opened()
    files = [open(os.devnull) for _ in range(count)]
    try:
        found = leaks.left_by_each_call(before, leaks.opened())
    finally:
        for file in files:
            file.close()
    assert found == (("an open file of each call",) if is_told and leaks.FILES.is_dir() else ())
