"""The documents: tables are what measurements say, links lead somewhere, and the README is one screen."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from suites.tables import DOCUMENTS, TABLE, TABLES, filled
from tests.sources import ROOT

PAGES = ("README.md", "CONTRIBUTING.md", *(f"docs/{path.name}" for path in sorted((ROOT / "docs").glob("*.md"))))
LINK = re.compile(r"\]\(([^)#:]+)(?:#[^)]*)?\)")
MOST_LINES = 120


@pytest.mark.parametrize("name", DOCUMENTS)
def test_tables_are_what_was_measured(name: str) -> None:
    text = (ROOT / name).read_text()
    assert TABLE.search(text) and filled(text) == text, "python -m suites.tables writes them"


def test_a_table_that_was_typed_is_found() -> None:
    text = "a\n<!-- table: summary -->\n| typed |\n<!-- /table -->\nb"
    assert filled(text) != text and filled(text).startswith("a\n") and filled(text).endswith("\nb")
    with pytest.raises(KeyError):
        filled("<!-- table: nothing -->\n<!-- /table -->")
    assert all(table().startswith("| ") for table in TABLES.values())


@pytest.mark.parametrize("name", PAGES)
def test_links_lead_somewhere(name: str) -> None:
    page = ROOT / name
    found = {link: (page.parent / link).resolve() for link in LINK.findall(page.read_text())}
    assert [link for link, target in found.items() if not target.exists()] == []


def test_readme_is_one_screen_and_names_every_page() -> None:
    text = (ROOT / "README.md").read_text()
    assert len(text.splitlines()) <= MOST_LINES
    linked = {Path(link).name for link in LINK.findall(text)}
    assert {path.name for path in (ROOT / "docs").glob("*.md")} <= linked
