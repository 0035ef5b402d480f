"""Generated code beside the user's lines that it computes, by the names of nodes.

The texts of the graphs say above each node from which line it is; a kernel's text begins with the nodes in it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath

from assay.harness.site.states import is_graph

LINE = re.compile(r"^\s*# File: (?P<file>.+?):(?P<number>\d+) in .+?, code: (?P<code>.*)$")
NODE = re.compile(r"^\s*(?P<name>\w+)(?:: \"[^\"]*\")? = ")
KERNELS = "source_kernels"
COMMENT = re.compile(r"^(?:// | *# )(?P<nodes>.*)$")
"""A line that names nodes: in C++ at the margin, in Triton inside of its function. `#pragma` is none."""


@dataclass(frozen=True, slots=True)
class Beside:
    """A kernel's text, the nodes that it says it computes, and the user's lines of them."""

    graph: str
    nodes: tuple[str, ...]
    lines: tuple[str, ...]
    text: str


def lines_of(states: Sequence[Mapping[str, str]]) -> dict[str, dict[str, str]]:
    """By graph, then node: `model.py:9  h = self.l(x)`. The first state that has a node says it."""
    found: dict[str, dict[str, str]] = {}
    for state in states:
        if is_graph(state["text"]):
            known = found.setdefault(state["graph"], {})
            for name, line in _lines(state["text"]):
                known.setdefault(name, line)
    return found


def _lines(text: str) -> Iterator[tuple[str, str]]:
    line = ""
    for each in text.splitlines():
        if said := LINE.match(each):
            line = f"{PurePath(said['file']).name}:{said['number']}  {said['code']}"
        elif line and (node := NODE.match(each)):
            yield node["name"], line


def beside(states: Sequence[Mapping[str, str]]) -> list[Beside]:
    """Every kernel that was generated, in order."""
    lines = lines_of(states)
    made = []
    for state in states:
        if state["state"] == KERNELS:
            for nodes, text in _kernels(state["text"]):
                known = lines.get(state["graph"], {})
                said = dict.fromkeys(known[node] for node in nodes if node in known)
                made.append(Beside(state["graph"], nodes, tuple(said), text))
    return made


def _kernels(text: str) -> Iterator[tuple[tuple[str, ...], str]]:
    """The kernels of a source, with the nodes that the comments of each name."""
    for block in re.split(r"\n\s*\n(?=// |@triton)", text.strip()):
        said = [COMMENT.match(row) for row in block.splitlines()]
        names = [name.strip() for each in said if each for name in each["nodes"].split(",")]
        if names:
            code = [row for row, each in zip(block.splitlines(), said, strict=True) if each is None]
            yield tuple(dict.fromkeys(names)), "\n".join(code)
