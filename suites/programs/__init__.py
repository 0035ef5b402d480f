"""Programs over storages: drawn, valid, small, printed as plain torch code. `assay run programs` hunts with them."""

from __future__ import annotations

from suites.programs.choices import Choices
from suites.programs.draw import draw_program
from suites.programs.program import Program


def draw(seed: str) -> Program:
    """The program of a seed, the same on every machine."""
    return draw_program(Choices.seeded(seed))
