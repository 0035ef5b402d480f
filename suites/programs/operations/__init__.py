"""Every operation that a program may use, by name: adding one is adding an entry to one of these tables."""

from __future__ import annotations

from assay.suites.programs.operations.indexing import INDEXING
from assay.suites.programs.operations.inplace import INPLACE
from assay.suites.programs.operations.numbered import NUMBERED
from assay.suites.programs.operations.pointwise import POINTWISE
from assay.suites.programs.operations.record import Operation
from assay.suites.programs.operations.reduction import REDUCTION
from assay.suites.programs.operations.special import SPECIAL
from assay.suites.programs.operations.views import VIEWS

FAMILIES: tuple[tuple[int, tuple[Operation, ...]], ...] = (
    (18, POINTWISE),
    (8, REDUCTION),
    (30, VIEWS),
    (26, INPLACE),
    (14, INDEXING),
    (12, SPECIAL),
)
"""The tables, each with how often a step comes from it."""
OPERATIONS = {operation.name: operation for _, family in (*FAMILIES, *NUMBERED) for operation in family}
