"""What an operation is: a name, and how its text and operands are drawn."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from assay.suites.programs.pen import Drawn, Pen, Where

Draw = Callable[[Pen], Drawn]


@dataclass(frozen=True, slots=True)
class Operation:
    """An operation; `draw` raises NoOperand where no live tensor suits it."""

    name: str
    draw: Draw


def each(names: str, template: str, where: Where = lambda tensor: True, count: int = 1) -> tuple[Operation, ...]:
    """One operation a name, of one tensor: `NAME` in the template stands for the name."""

    def of(name: str) -> Operation:
        return Operation(name, lambda pen: Drawn(template.replace("NAME", name), (pen.tensor(where),), count))

    return tuple(of(name) for name in names.split())


def fixed(name: str, template: str, where: Where = lambda tensor: True, count: int = 1) -> Operation:
    """An operation of one tensor whose text never changes."""
    return Operation(name, lambda pen: Drawn(template, (pen.tensor(where),), count))
