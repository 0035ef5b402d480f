"""What each step of a compile changed, of its states as they are kept."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Change:
    """A state with what is new in it: lines with `+`, `-` or a space before them."""

    graph: str
    state: str
    text: str
    difference: tuple[str, ...]


def is_graph(text: str) -> bool:
    """Whether a state is a graph of ATen calls, and no schedule or source."""
    return text.lstrip().startswith("class ")


def changes_of(states: Sequence[Mapping[str, str]]) -> list[Change]:
    """The states, each compared with the one before it of its graph, where both are graphs."""
    made: list[Change] = []
    before: dict[str, list[str]] = {}
    for state in states:
        lines = state["text"].splitlines()
        earlier = before.get(state["graph"], lines)
        compares = is_graph(state["text"])
        found = tuple(difflib.unified_diff(earlier, lines, lineterm="", n=2))[2:] if compares else ()
        made.append(Change(state["graph"], state["state"], state["text"], found))
        if compares:
            before[state["graph"]] = lines
    return made
