"""Every loop of this suite trains as in eager, its backwards compiled as a whole."""

from __future__ import annotations

import pytest

from assay.harness.case import Case
from assay.harness.discover import discover
from assay.harness.run import RunRequest, run_case

LOOPS = discover(["training"])


@pytest.mark.nightly
@pytest.mark.parametrize("case", LOOPS, ids=lambda case: case.name)
def test_training_loops_are_eagers(case: Case) -> None:
    """Those that record gradients of gradients run some backwards in eager, which is counted."""
    result = run_case(case, "train", "assay,own_backward", RunRequest(timed=False))
    assert result.verdict in ("same", "fell-back"), result
