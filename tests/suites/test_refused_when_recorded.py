"""A slice of refused dtypes, held against recordings; the whole is `python -m assay.suites.refused_when_recorded`."""

from __future__ import annotations

import pytest
import torch

from assay.harness.batches.sample import Sample
from assay.suites.ops import refused
from assay.suites.refused_when_recorded import RIGHT, outcome, outcomes


@pytest.mark.parametrize("name", ["slice_scatter.complex64", "native_batch_norm.int32", "masked.norm.complex128"])
def test_refused_dtypes_are_as_eager(name: str) -> None:
    batches = [batch for batch in refused.batches() if batch.name == f"{name}.refused"]
    assert batches and not [found for found in outcomes(batches) if found[1] not in RIGHT]


def test_refused_dtypes_that_are_accepted_are_told() -> None:
    def refuse(x: torch.Tensor) -> torch.Tensor:
        return x if type(x) is not torch.Tensor else x.new_empty(-1)

    assert outcome(Sample("of ours", refuse, (torch.ones(3),), {}), is_trained=False).startswith("accepted")
