"""Every operation that a program may use, by name: adding one is adding an entry to one of these tables."""

from __future__ import annotations

from suites.programs.operations.indexing import INDEXING
from suites.programs.operations.inplace import INPLACE
from suites.programs.operations.numbered import NUMBERED
from suites.programs.operations.pointwise import POINTWISE
from suites.programs.operations.record import Operation
from suites.programs.operations.reduction import REDUCTION
from suites.programs.operations.special import SPECIAL
from suites.programs.operations.views import VIEWS

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
