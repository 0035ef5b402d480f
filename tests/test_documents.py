"""The documents: generated parts are current, every name in them exists, and the README is one screen.

The build by Sphinx is `tox -e docs`. It takes longer than these tests, and holds more: it fails on any warning.
"""

from __future__ import annotations

import pkgutil
import re
import tomllib
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from assay.harness.cli.commands import commands
from assay.suites import metrics
from assay.suites.signatures import GIVEN
from assay.suites.tables import followed_program, places, public_names
from assay.suites.tables.parts import TABLE, TABLES, documents, filled
from tests.sources import ROOT

PAGES = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")] + sorted(
    path for path in (ROOT / "docs").rglob("*.md") if not path.relative_to(ROOT / "docs").parts[0].startswith("_")
)
LINK = re.compile(r"\]\(([^)#:]+)(?:#[^)]*)?\)")
NAMED_PATH = re.compile(r"`((?:compiler|reference|harness|suites|tests|docs)/[\w./]*)`")
DOTTED = re.compile(r"`((?:assay|compiler|reference|harness|suites)(?:\.\w+)+)(?:\(\))?`")
PYTHON = re.compile(r"```python\n(.*?)```", re.S)
MODULE = re.compile(r"(?:python|nproc-per-node \d) -m ((?:assay|suites|harness)[\w.]*)")
TOX = re.compile(r"tox -e (\w+)")
TOCTREE = re.compile(r"```\{toctree\}\n(.*?)```", re.S)
MOST_LINES = 120


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


EVERY_PAGE = pytest.mark.parametrize("page", PAGES, ids=name_of)


@pytest.mark.parametrize("page", documents(), ids=name_of)
def test_generated_parts_are_current(page: Path) -> None:
    text = page.read_text()
    assert filled(text) == text, "python -m assay.suites.tables writes them"


def test_every_generated_part_has_a_page() -> None:
    used = {found[1] for page in documents() for found in TABLE.findall(page.read_text())}
    assert used == set(TABLES)


def test_a_part_that_was_typed_is_found() -> None:
    text = "a\n<!-- table: summary -->\n| typed |\n<!-- /table -->\nb"
    assert filled(text) != text and filled(text).startswith("a\n") and filled(text).endswith("\nb")
    with pytest.raises(KeyError):
        filled("<!-- table: nothing -->\n<!-- /table -->")


@EVERY_PAGE
def test_links_lead_somewhere(page: Path) -> None:
    found = {link: (page.parent / link).resolve() for link in LINK.findall(page.read_text())}
    assert [link for link, target in found.items() if not target.exists()] == []


@EVERY_PAGE
def test_paths_that_are_named_exist(page: Path) -> None:
    named = NAMED_PATH.findall(page.read_text())
    assert [path for path in named if not (ROOT / path).exists()] == []


@EVERY_PAGE
def test_commands_that_are_named_exist(page: Path) -> None:
    text = page.read_text()
    environments = set(re.findall(r"\[testenv:(\w+)\]", (ROOT / "tox.ini").read_text())) | {"py"}
    assert [name for name in TOX.findall(text) if name not in environments] == []
    assert [name for name in MODULE.findall(text) if find_spec(name.rstrip(".")) is None] == []
    assert [name for name in commands_in(text) if name not in commands.commands] == []


@EVERY_PAGE
def test_names_that_are_given_exist(page: Path) -> None:
    assert [name for name in DOTTED.findall(page.read_text()) if not is_there(name)] == []


def is_there(name: str) -> bool:
    """Whether a dotted name is a module, or something in one."""
    try:
        pkgutil.resolve_name(name)
    except (ImportError, AttributeError):
        return False
    return True


def test_a_wrong_name_is_found() -> None:
    assert DOTTED.findall("`assay.compiler.journal.totals()` of `compiler.nothing`") == [
        "assay.compiler.journal.totals",
        "compiler.nothing",
    ]
    assert (
        is_there("assay.compiler.journal.totals")
        and not is_there("compiler.nothing")
        and not is_there("compiler.fx.nothing")
    )


@pytest.mark.parametrize("page", ["getting_started", "adding"])
def test_examples_run(page: str) -> None:
    blocks = PYTHON.findall((ROOT / "docs" / f"{page}.md").read_text())
    assert blocks
    for block in blocks:
        exec(compile(block, f"docs/{page}.md", "exec"), {})


def commands_in(text: str) -> Iterator[str]:
    """The commands of `assay` in the code of a page."""
    code = "\n".join([*re.findall(r"```\w*\n(.*?)```", text, re.S), *re.findall(r"`[^`\n]+`", text)])
    return (name for name in re.findall(r"(?<!from )\bassay ([a-z]+)\b", code))


def test_a_wrong_command_is_found() -> None:
    assert list(commands_in("Run `assay runn zoo`.\n```\nassay bench zoo\n```\nassay is a name")) == ["bench", "runn"]
    assert NAMED_PATH.findall("see `compiler/nothing.py`") == ["compiler/nothing.py"]


def test_readme_is_one_screen_and_names_every_page() -> None:
    text = (ROOT / "README.md").read_text()
    assert len(text.splitlines()) <= MOST_LINES
    linked = {Path(link).name for link in LINK.findall(text)}
    assert {path.name for path in (ROOT / "docs").glob("*.md")} <= linked | {"index.md"}


def test_index_lists_every_page() -> None:
    listed = {line for tree in TOCTREE.findall((ROOT / "docs" / "index.md").read_text()) for line in tree.split("\n")}
    assert {path.stem for path in (ROOT / "docs").glob("*.md")} - {"index"} <= listed


@EVERY_PAGE
def test_sentences_are_short(page: Path) -> None:
    assert list(metrics.long_sentences(page)) == []


def test_a_long_sentence_is_found(tmp_path: Path) -> None:
    (page := tmp_path / "page.md").write_text(
        "One is short. " + "word " * 40 + "end.\n\n```\n" + "code " * 40 + "\n```\n"
    )
    assert len(list(metrics.long_sentences(page))) == 1


def test_followed_program_shows_every_stage() -> None:
    states, printed = followed_program.followed()
    assert {"joint", *followed_program.TWICE, "source_call"} <= {state.name for state in states}
    assert [state.half for state in states if state.name == "schedule"] == ["forward", "backward"]
    assert "compute nodes" in printed and str(ROOT) not in "".join(state.text for state in states)
    assert all(f"### {state.title}\n" in followed_program.page() for state in states[:2])


def test_public_names_have_docstrings() -> None:
    listed = [thing for things in public_names.SECTIONS.values() for thing in things]
    assert [thing for thing in listed if not (thing.__doc__ or "").strip()] == []


def test_places_are_in_the_checkout() -> None:
    named = NAMED_PATH.findall(places.places())
    assert len(named) > 8 and all((ROOT / path).exists() for path in named)


def test_metrics_count_cycles_of_rooms(tmp_path: Path) -> None:
    texts = {"a/b": "from compiler.c import x\n", "c": "from compiler.a.b import y\n", "d": "import os\n"}
    for name, text in texts.items():
        (tmp_path / "compiler" / name).mkdir(parents=True)
        (tmp_path / "compiler" / name / "x.py").write_text(text)
    (tmp_path / "compiler" / "top.py").write_text("from compiler.d.x import z\n")
    rooms = {"compiler.a": {"compiler.c"}, "compiler.c": {"compiler.a"}, "compiler.d": set()}
    assert metrics.arrows_of(tmp_path) == {**rooms, "compiler.top": {"compiler.d"}}
    assert list(metrics._imports(tmp_path).values()) == [1, 2]
    assert metrics.worse({"a": 1, "b": 2}, {"a": 2, "b": 2}) == ["a"]


def test_metrics_tell_whose_a_signature_is(tmp_path: Path) -> None:
    (tmp_path / "harness").mkdir()
    many, given = "a, b, c, d, e, f, g", "compiler.entry.aot.aot_function"
    assert given in GIVEN
    (tmp_path / "harness" / "x.py").write_text(f"def own({many}): ...\ndef aot_function({many}): ...\ndef few(a): ...")
    assert list(metrics._crowded(tmp_path).values()) == [2, 1]


def test_the_docs_extra_is_what_conf_asks_for() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    conf = (ROOT / "docs" / "conf.py").read_text()
    assert {"furo", "myst-parser", "sphinx"} == set(extras["docs"]) and "myst_parser" in conf and "furo" in conf
