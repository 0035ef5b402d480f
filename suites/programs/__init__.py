"""Programs over storages: drawn, valid, small, printed as plain torch code. `assay run programs` hunts with them."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass

from assay.suites.programs.calls import raised_by_eager
from assay.suites.programs.choices import Choices
from assay.suites.programs.draw import draw_program, is_defined
from assay.suites.programs.program import Program
from assay.suites.programs.simplify import simpler
from assay.suites.programs.variants import variants

NUMBERED_EVERY = 3
"""One program in so many takes numbers. A hash of its seed says which: the others do not depend on it."""


@dataclass(frozen=True, slots=True)
class Generated:
    """A program as the hunt takes it."""

    program: Program

    def source(self) -> str:
        return self.program.source()

    def simpler(self) -> Iterator[Generated]:
        return (Generated(program) for program in simpler(self.program) if is_defined(program))

    def variants(self) -> Iterator[Generated]:
        return (Generated(program) for program in variants(self.program))

    def raises(self) -> bool:
        return raised_by_eager(self.program) is not None

    @property
    def operations(self) -> tuple[str, ...]:
        return self.program.operations

    @property
    def coverage(self) -> tuple[tuple[str, str, str], ...]:
        return self.program.coverage


def draw(seed: str) -> Generated:
    """The program of a seed, the same on every machine; one in three takes Python numbers."""
    return Generated(draw_program(Choices.seeded(seed), zlib.crc32(seed.encode()) % NUMBERED_EVERY == 0))
