"""The states of a compile as they are kept of a case, and what each step changed."""

from __future__ import annotations

import difflib
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from assay.harness.locate.runner import Runner


@dataclass(frozen=True, slots=True)
class Change:
    """A state with what is new in it: lines with `+`, `-` or a space before them."""

    graph: str
    state: str
    text: str
    difference: tuple[str, ...]


def states_of(runner: Runner, backend: str, mode: str) -> list[dict[str, str]]:
    """Every state that our compiler goes through, as it is written to a folder: graph, state, text."""
    with tempfile.TemporaryDirectory(prefix="assay-states-") as folder:
        runner.run(f"{backend},warm=False,dump={folder}", mode)
        paths = sorted(Path(folder).glob("*/*.py"))
        return [{"graph": p.parent.name, "state": p.stem.partition("_")[2], "text": p.read_text()} for p in paths]


def changes_of(states: Sequence[Mapping[str, str]]) -> list[Change]:
    """The states, each compared with the one before it of its graph, where both are graphs."""
    made: list[Change] = []
    before: dict[str, list[str]] = {}
    for state in states:
        lines = state["text"].splitlines()
        earlier = before.get(state["graph"], lines)
        is_graph = "class " in state["text"][:2000]
        found = tuple(difflib.unified_diff(earlier, lines, lineterm="", n=2))[2:] if is_graph else ()
        made.append(Change(state["graph"], state["state"], state["text"], found))
        if is_graph:
            before[state["graph"]] = lines
    return made
