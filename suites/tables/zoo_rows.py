"""The table of the zoo's models, read off its cases."""

from __future__ import annotations

from assay.harness.discover import discover
from assay.suites.tables.markdown import literal, table


def zoo_models() -> str:
    """Each model with its modes, sizes and tags."""
    rows = ((literal(case.name), *map(", ".join, (case.modes, case.sizes, case.tags))) for case in discover(["zoo"]))
    return table(("case", "modes", "sizes", "tags"), rows)
