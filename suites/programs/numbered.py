"""Programs that take Python numbers, all of them: `assay run programs.numbered`. One in three of `programs` does."""

from __future__ import annotations

from assay.suites.programs import Generated
from assay.suites.programs.choices import Choices
from assay.suites.programs.draw import draw_program


def draw(seed: str) -> Generated:
    """The program of a seed, the same on every machine."""
    return Generated(draw_program(Choices.seeded(seed), has_numbers=True))
