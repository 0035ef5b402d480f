"""The table of other people's packages, from the rows of `assay run libraries` that a file of results keeps."""

from __future__ import annotations

from assay.suites.tables.markdown import literal, table
from assay.suites.tables.measured import measured

OF_LIBRARIES = "libraries_2cores.json"


def libraries_run() -> str:
    """The rows that ran last: each model with its package, the mode, the verdict and the commit."""
    rows = measured(OF_LIBRARIES)["rows"]
    return table(("package", "row", "mode", "verdict", "at"), map(_cells, rows))


def _cells(row: dict[str, str | bool]) -> tuple[str, ...]:
    name = str(row["case"]).removeprefix("libraries.")
    return str(row["package"]), literal(name), str(row["mode"]), _said(row), literal(str(row["commit"]))


def _said(row: dict[str, str | bool]) -> str:
    is_known = bool(row["passes"]) and row["verdict"] != "same"
    return f"{literal(str(row['verdict']))}{' (known)' if is_known else ''}"
