"""What of `math.h` a unit begins with: the parts that its text names, and what those name in turn.

    math.h -> its items at the top level, in order     text -> items whose names it has, and theirs, ... -> a shorter

Reading all of it is a third of the time that a unit of a few kernels compiles. All items of one name come together, so
that a call is of the same overload as with the whole file.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ALWAYS = re.compile(r"typedef |#define INLINE|namespace m \{|\}  // namespace m")
"""How the items begin that every unit has: the types, and the namespace around the functions."""
DEFINED = re.compile(r"(?:struct|#define|constexpr [\w ]+?|const [\w ]+?) (\w+)\b(?!\()|\b(\w+)\(")
"""The name that an item defines: of a struct, a macro or a table, or of what stands before the first parenthesis."""
ATTRIBUTES = re.compile(r"__attribute__\(\(.*?\)\)|alignas\(\d+\)")
REDUCTION = re.compile(r"#pragma omp declare reduction\((\w+)")
MACRO = re.compile(r"(ASSAY_\w+)\((\w+)(?:, \w+)?\)")
WORD = re.compile(r"[A-Za-z_]\w*")
VARIABLE = re.compile(r"(?<!m::)\bi\d+\b")
"""The variables of loops. Two Bessel functions have such names, and are called as `m::i0` and `m::i1`."""


@dataclass(frozen=True, slots=True)
class Item:
    """A part of `math.h` with the comment before it: the names that it defines, and all the words of its text."""

    text: str
    names: frozenset[str]
    words: frozenset[str]
    is_always: bool


@functools.cache
def prelude() -> str:
    """The text of `math.h`."""
    return Path(__file__).with_name("math.h").read_text()


def prelude_of(text: str) -> str:
    """What of `math.h` the text needs before it."""
    return _with(frozenset(_by_name().keys() & WORD.findall(VARIABLE.sub("", text))))


@functools.cache
def items() -> tuple[Item, ...]:
    """The items of `math.h`, in order; what an `#if` at the top level holds is one item."""
    return tuple(_item(lines) for lines in _grouped(prelude().splitlines()))


@functools.cache
def _by_name() -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for number, item in enumerate(items()):
        for name in item.names:
            found.setdefault(name, []).append(number)
    return found


@functools.lru_cache(maxsize=256)
def _with(names: frozenset[str]) -> str:
    taken = {number for number, item in enumerate(items()) if item.is_always}
    pending = [number for name in names for number in _by_name()[name]]
    while pending:
        number = pending.pop()
        if number not in taken:
            taken.add(number)
            pending += [other for word in items()[number].words for other in _by_name().get(word, ())]
    return "\n".join(items()[number].text for number in sorted(taken)) + "\n"


def _grouped(lines: list[str]) -> Iterator[list[str]]:
    """The lines of each item: to where its braces and every `#if` of it are closed."""
    group: list[str] = []
    braces = conditions = 0
    for line in lines:
        conditions += line.startswith("#if") - line.startswith("#endif")
        braces += 0 if _is_namespace(line) else line.count("{") - line.count("}")
        is_open = bool(braces or conditions)
        if not line and not is_open:
            group = []  # a heading, which is of no item
        elif line:
            group.append(line)
            if not is_open and not line.startswith(("//", "template")) and not line.endswith("\\"):
                yield group
                group = []


def _is_namespace(line: str) -> bool:
    return line == "namespace m {" or line == "}  // namespace m"


def _item(lines: list[str]) -> Item:
    code = [line for line in lines if not line.startswith("//")]
    heads = [ATTRIBUTES.sub("", line) for line in code if line[:1] not in (" ", "}")]
    words = frozenset(WORD.findall("\n".join(code)))
    return Item(
        "\n".join(lines), frozenset(map(_name, heads)) - {""}, words, bool(ALWAYS.match(code[0] if code else ""))
    )


def _name(head: str) -> str:
    """The name that a line at the margin defines; empty where it defines none."""
    if found := REDUCTION.match(head):
        return found[1]
    if found := MACRO.match(head):
        return found[2]
    if head.startswith(("template", "#if", "#else", "#endif", "#pragma", "#undef", "typedef", "namespace")):
        return ""
    found = DEFINED.search(head)
    return (found[1] or found[2]) if found else ""
