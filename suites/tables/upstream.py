"""The list of bugs in torch, made from the docstrings of their repros."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from assay.suites import upstream_bugs
from assay.suites.tables.markdown import literal, table

FOLDER = Path(upstream_bugs.__file__).parent
BACKENDS = re.compile(r"Backends?: (.*?)\. (?=Seen|Behind|On|So)|Backends?: (.*?)\.", re.S)
SEEN = re.compile(r"Seen with (.*?\))[.:;, ]", re.S)
KIND = re.compile(r"Kind: (.*?)\.")
KINDS = {
    "wrong result": "another value, gradient or effect than eager's, and no error",
    "wrong form": "another dtype, shape, stride, alias or version than eager's",
    "missing error": "a result where eager raises",
    "error": "an error, or the end of the process, where there is a result",
}
MENDED = re.compile(r"Mended in (torch \d+\.\d+)")
GROUPS = (
    "Eager on a CPU",
    "Eager on a GPU",
    "Dynamo",
    "Compiled backends on a CPU",
    "Compiled backends on a GPU",
    "Triton",
)


@dataclass(frozen=True, slots=True)
class Bug:
    """One repro: what it shows, which backends have it, and the versions."""

    file: str
    title: str
    kind: str
    backends: str
    seen: str
    mended: str

    @property
    def versions(self) -> str:
        return self.seen + (f"; mended in {self.mended}" if self.mended else "")

    @property
    def group(self) -> str:
        if "Triton" in self.title:
            return "Triton"
        place = "GPU" if "GPU" in self.backends else "CPU"
        is_behind_dynamo = "Dynamo" in self.backends or self.backends.startswith("all")
        is_eager = self.backends.startswith("eager") or self.backends.startswith("none")
        if is_behind_dynamo:
            return "Dynamo"
        return f"Eager on a {place}" if is_eager else f"Compiled backends on a {place}"


def bugs_upstream() -> str:
    """How many repros there are of each kind, and every repro, in groups by what has the bug."""
    found = list(_bugs())
    sections = (_section(group, [bug for bug in found if bug.group == group]) for group in GROUPS)
    return "\n\n".join((_kinds(found), *sections))


def _kinds(bugs: list[Bug]) -> str:
    rows = ((kind, meaning, str(sum(bug.kind == kind for bug in bugs))) for kind, meaning in KINDS.items())
    return table(("kind", "what it is", "bugs"), rows)


def _section(group: str, bugs: list[Bug]) -> str:
    rows = ((bug.title, bug.kind, bug.backends, bug.versions, literal(bug.file)) for bug in bugs)
    return f"## {group}: {len(bugs)}\n\n" + table(("what differs", "kind", "backends", "seen with", "repro"), rows)


def _bugs() -> Iterator[Bug]:
    for path in sorted(FOLDER.glob("[!_]*.py")):
        text = " ".join((ast.get_docstring(ast.parse(path.read_text())) or "").split())
        title = (ast.get_docstring(ast.parse(path.read_text())) or "").partition("\n\n")[0]
        yield Bug(
            path.name, title, _first(KIND, text), _first(BACKENDS, text), _first(SEEN, text), _first(MENDED, text)
        )


def _first(pattern: re.Pattern[str], text: str) -> str:
    """The first group that a pattern finds, or nothing."""
    found = pattern.search(text)
    return next((group for group in found.groups() if group), "") if found else ""
