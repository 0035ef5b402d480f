"""Markdown that the generated parts are made of."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table of Markdown, with a head and a line per row."""
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join(f"| {' | '.join(_cell(text) for text in line)} |" for line in lines).replace("| --- ", "|---")


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def bullets(lines: Iterable[str]) -> str:
    """A list of Markdown. Angle brackets are escaped, as they would be read as HTML."""
    return "\n".join(f"- {' '.join(line.split())}" for line in lines)


def capitalized(text: str) -> str:
    """Text that begins like a sentence, unless its first word is a name in code."""
    first = text.split(" ", 1)[0]
    return text if "_" in first or "=" in first else text[:1].upper() + text[1:]


def literal(text: str) -> str:
    """Text in the form of code."""
    return f"`{text}`"
