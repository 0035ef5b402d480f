"""Memory that grows with each call is told from what a program keeps once."""

from __future__ import annotations

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
