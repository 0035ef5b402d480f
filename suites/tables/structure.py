"""The rooms of the compiler with their arrows, and what was counted before and after there were rooms."""

from __future__ import annotations

import ast
from pathlib import Path

from assay.suites.metrics import ROOT, arrows_of
from assay.suites.tables.markdown import literal, table
from assay.suites.tables.measured import measured

BEFORE, AFTER = "structure_before.json", "structure_after.json"


def before_and_after() -> str:
    """Each count before and after, with the commits in the head."""
    before, after = measured(BEFORE), measured(AFTER)
    heads = (f"{when} ({found['commit']}, {found['date']})" for when, found in (("before", before), ("after", after)))
    names = [name for name in after["counts"] if name in before["counts"]]
    rows = ((name, *(f"{found['counts'][name]:g}" for found in (before, after))) for name in names)
    return table(("count", *heads), rows)


def rooms() -> str:
    """Each folder of the compiler: what its `__init__.py` says of it, its modules, and the rooms that it imports."""
    arrows = arrows_of(ROOT)
    folders = sorted(path.parent for path in (ROOT / "compiler").glob("*/__init__.py"))
    names = set(map(_name, folders))
    rows = (
        (
            literal(f"{folder.relative_to(ROOT)}/"), _said_of(folder), str(len(list(folder.rglob("*.py")))),
            ", ".join(sorted(room.partition(".")[2] for room in arrows[_name(folder)] & names - {_name(folder)})),
        )
        for folder in folders
    )  # fmt: skip
    return table(("folder", "what it holds", "files", "imports"), rows)


def _said_of(folder: Path) -> str:
    return (ast.get_docstring(ast.parse((folder / "__init__.py").read_text())) or "").partition("\n\n")[0]


def _name(folder: Path) -> str:
    return f"compiler.{folder.name}"
