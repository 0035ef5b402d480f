"""Every operator, module, optimizer and autograd.Function of the databases that ship in torch: `assay run ops`."""

from __future__ import annotations

from collections.abc import Iterator

from assay.harness.batches.sample import Batch
from assay.suites.ops import modules, operators, optimizers, refused


def batches() -> Iterator[Batch]:
    """Every batch, in the databases' order."""
    yield from operators.batches()
    yield from refused.batches()
    yield from modules.batches()
    yield from optimizers.batches()
