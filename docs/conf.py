"""How Sphinx builds the documents: `tox -e docs`. Pages that show the compiler at work are made as they are built."""

from __future__ import annotations

import re
import sys
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parent
sys.path.insert(0, str(ROOT))

from sphinx.application import Sphinx  # noqa: E402

from assay.suites.tables import followed_program, public_names  # noqa: E402

project = "Assay"
author = "The Assay authors"
copyright = author
html_title = "Assay"
html_theme = "furo"
extensions = ["myst_parser", "sphinx.ext.autodoc"]
exclude_patterns = ["_build", "_generated"]
myst_heading_anchors = 3
myst_enable_extensions = ["colon_fence"]
default_role = "code"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
autodoc_type_aliases = {
    name: name for name in ("Compiled", "Decompositions", "GraphCall", "GraphCompiler", "Made", "PartitionFn", "Wrap")
}
autodoc_member_order = "bysource"
python_maximum_signature_line_length = 90
nitpicky = False

FORWARD = re.compile(r"~?\w*\.*TypeAliasForwardRef\('(\w+)'\)")
FIELDS = ("Raises:", "Shapes:", "Units:", "Source:", "Cost:")
"""How paragraphs of our docstrings begin that stand for themselves."""


def write_pages(app: Sphinx) -> None:
    """The program that is followed through every stage, and the list of public names."""
    folder = HERE / "_generated"
    folder.mkdir(exist_ok=True)
    (folder / "followed_program.md").write_text(followed_program.page())
    (folder / "reference.md").write_text(public_names.page())


def split_fields(app: Sphinx, what: str, name: str, obj: object, options: object, lines: list[str]) -> None:
    """Gives each field of a docstring a paragraph of its own, and its name in bold."""
    split: list[str] = []
    for line in lines:
        field = next((field for field in FIELDS if line.startswith(field)), None)
        split += ["", f"**{field}**{line.removeprefix(field)}"] if field else [line]
    lines[:] = split


def name_aliases(
    app: Sphinx, what: str, name: str, obj: object, options: object, signature: str, returns: str
) -> tuple[str | None, str | None]:
    """Shows an alias of a type by its bare name."""
    bare = (FORWARD.sub(r"\1", text) if text else text for text in (signature, returns))
    return tuple(bare)  # type: ignore[return-value]


def setup(app: Sphinx) -> None:
    app.connect("autodoc-process-signature", name_aliases)
    app.connect("builder-inited", write_pages)
    app.connect("autodoc-process-docstring", split_fields)
