"""What a generator of programs gives the hunt: programs as data that print themselves and know simpler ones."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

from assay.harness.case import MODES, Case
from assay.harness.outcome import Result


class Program(Protocol):
    """A generated program. Its text defines `inputs()` and `program(*inputs)`, and needs torch alone; it may define a
    case's `scenario(program, *inputs)` too, and `NUMBERS`: what each call is given after the inputs."""

    def source(self) -> str: ...

    def simpler(self) -> Iterator[Program]: ...

    def variants(self) -> Iterator[Program]:
        """The program with something inserted that changes nothing, one insertion each."""

    def raises(self) -> bool:
        """Whether eager raises when it runs the program."""

    @property
    def operations(self) -> tuple[str, ...]: ...

    @property
    def coverage(self) -> tuple[tuple[str, str, str], ...]: ...


class Generator(Protocol):
    """A module with `draw`: the program of a seed."""

    def draw(self, seed: str) -> Program: ...


NODE = "\n\nWhile executing %"
"""With this torch.fx begins what it adds to an error: at which node it was raised."""
MOST_SAID = 100


@dataclass(frozen=True, slots=True)
class Kind:
    """How a program fails: the verdict, the fields that differ, and of a crash its error without the numbers."""

    verdict: str
    fields: frozenset[str]
    error: str = ""

    def includes(self, other: Kind) -> bool:
        """Whether the other failure is this one, or a part of it."""
        same = self.verdict == other.verdict and self.error == other.error
        return same and bool(other.fields or not self.fields) and other.fields <= self.fields

    def __str__(self) -> str:
        return " ".join(filter(None, (self.verdict, ",".join(sorted(self.fields)), self.error)))


def kind_of(result: Result) -> Kind:
    """The kind of a result that is not `same`."""
    if result.verdict == "fell-back":
        return Kind(result.verdict, frozenset(), _message(": ".join(["", *sorted(result.eager)])))
    if result.verdict in ("crash", "unsupported"):
        return Kind(result.verdict, frozenset(), _message(result.detail))
    steady = [found for found in result.differences if not found.detail.startswith("reference-unstable")]
    return Kind(result.verdict, frozenset(found.field for found in steady))


def _message(detail: str) -> str:
    """What a crash says on one line, without its place and its numbers: `step 1, call: NAME at FILE:LINE: MESSAGE`.
    Of a process that ended, how it did, and not what it said before."""
    if detail.startswith(("killed by", "exit status")):
        return detail.partition(". ")[0]
    name, _, rest = detail.partition(": ")[2].partition(" at ")
    message = re.sub(r"^\S.*?:\d+: ", "", rest) if rest else detail
    message = message.rpartition(" got ")[2] if " got " in message else message
    said = " ".join(f"{name}: {message}".partition(NODE)[0].split()).strip(": ")
    return textwrap.shorten(re.sub(r"0x[0-9a-f]+|\d+", "N", said), MOST_SAID, placeholder=" ...")


def case_of(source: str, name: str) -> Case:
    """The text as a case: it is compiled and run as it is printed."""
    namespace: dict[str, Any] = {}
    exec(compile(source, f"<{name}>", "exec"), namespace)
    function, inputs, scenario = namespace["program"], namespace["inputs"], namespace.get("scenario")
    numbers = tuple(namespace.get("NUMBERS", ()))
    return Case(
        name, lambda: (function, inputs(), {}), MODES, ("fresh",), ("tiny",), scenario=scenario, numbers=numbers
    )
