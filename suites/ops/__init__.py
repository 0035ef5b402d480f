"""Every operator, module, optimizer and autograd.Function of the databases that ship in torch: `assay run ops`."""

from __future__ import annotations

from collections.abc import Iterator

from harness.sample import Batch
from suites.ops import operators
from suites.ops.database import autograd_function_db, op_db


def batches() -> Iterator[Batch]:
    """Every batch, in the databases' order."""
    for op in op_db:
        yield from operators.operator_batches(op)
    for op in autograd_function_db:
        yield from operators.operator_batches(op)
