"""Python numbers that change from call to call: which a program takes, and its value of each in every call.

The first call's values are those that the program is drawn with. The further ones are drawn afterwards, and kept where
eager, called with all of them in turn, returns or raises before anything has been written.
"""

from __future__ import annotations

from assay.suites.programs.choices import Choices
from assay.suites.programs.program import KINDS, Number

NEAR = ("2", "3", "1", "0", "-1", "-2", "4", "5", "-7", "9", "-5")
FAR = ("1 << 31", "-(1 << 31)", "1 << 40", "-(1 << 62)", "(1 << 63) - 1", "-(1 << 63)")
FLOATS = (
    "0.5",
    "1.5",
    "-2.0",
    "3.0",
    "0.1",
    "0.0",
    "-0.0",
    "1.0",
    "inf",
    "-inf",
    "nan",
    "1e-40",
    "1e30",
    "1e300",
    "-7.25",
)
PLAIN = {
    "position": ("2", "1", "3", "0", "-1"),
    "size": ("2", "3", "1", "4"),
    "whole": ("2", "3", "-1", "0", "1", "5"),
    "factor": ("0.5", "1.5", "2.0", "-2.0", "0.0", "3.0"),
    "flag": ("True", "False"),
}
"""What a number of each kind may be in the first call."""
LATER = {
    "position": (*NEAR, *NEAR, *FAR),
    "size": (*NEAR, "6", "8", "12"),
    "whole": (*NEAR, "127", "300", "16777217", *FAR),
    "factor": FLOATS,
    "flag": ("True", "False"),
}
"""What a number of each kind may be in later calls."""
CALLS = 6
"""At most so many."""
REFUSED = 2
"""At most so many of them raise in eager."""
TRIES = 12
"""How often a further call is drawn."""
KEPT_PERCENT = 30
SETS = (
    (3, ("n",)), (2, ("x",)), (2, ("n", "x")), (2, ("n", "m")), (2, ("n", "k")), (2, ("x", "y")), (1, ("k",)),
    (1, ("w",)), (2, ("w", "x")), (1, ("n", "k", "x", "flag")), (1, ("n", "w", "x", "y")), (1, ("x", "flag")),
)  # fmt: skip
"""The numbers of a program, by name."""


def draw_numbers(choices: Choices) -> tuple[Number, ...]:
    """The numbers of a program, each with its value in the first call."""
    return tuple(Number(name, (choices.pick(PLAIN[KINDS[name]]),)) for name in choices.weighted(SETS))


def draw_call(choices: Choices, numbers: tuple[Number, ...]) -> tuple[str, ...]:
    """Values for a further call; now and then a number stays what it was in the first one."""
    return tuple(_later(choices, number) for number in numbers)


def _later(choices: Choices, number: Number) -> str:
    if choices.chance(KEPT_PERCENT):
        return number.values[0]
    return choices.pick(LATER[KINDS[number.name]])
