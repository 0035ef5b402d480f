"""Programs as a Hypothesis strategy: each of its draws is one of the program's choices, so that it shrinks them."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from assay.suites.programs import Generated
from assay.suites.programs.choices import Choices
from assay.suites.programs.draw import draw_program


@st.composite
def programs(draw: Any) -> Generated:
    """A drawn program."""
    return Generated(draw_program(Choices(lambda n: draw(st.integers(0, n - 1)) if n > 1 else 0)))
