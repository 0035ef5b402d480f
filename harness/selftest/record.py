"""What a self-test is made of, whichever bank it tries: a fault, what killed it, a bank that knows how to try one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Member:
    """One fault of a bank, or one control, which `is_right`."""

    name: str
    kind: str
    wrong: str
    mode: str = "both"
    is_right: bool = False


@dataclass(frozen=True, slots=True)
class Kill:
    """The first row that was not `same`: its case and mode, its verdict, and the first field that differed."""

    case: str
    mode: str
    verdict: str
    field: str = ""
    path: str = ""
    detail: str = ""
    part: str = ""
    """Of a bug of the compiler: which part of what it is tried on has the row."""

    def __str__(self) -> str:
        where = f": {self.field} at {self.path}" if self.field else f": {self.detail.partition(chr(10))[0][:80]}"
        return f"{self.case} {self.mode} {self.verdict}{where}"


@dataclass(frozen=True, slots=True)
class Tried:
    """How a fault fared over `rows` rows of the ordinary command; `reason` is what the table of survivors says."""

    bank: str
    name: str
    kind: str
    wrong: str
    killed: bool
    by: Kill | None
    seconds: float
    rows: int
    is_right: bool = False
    reason: str = ""
    left: int = 0
    """How many rows were left when time was up."""

    @property
    def passes(self) -> bool:
        """A control that is not accused; a fault that is killed and not excused, or lives and is."""
        return not self.killed if self.is_right else self.killed != bool(self.reason)


@dataclass(frozen=True, slots=True)
class Asked:
    """What to try faults on: rows as (case origin, case name), the nearest first, in a size, within a time."""

    rows: tuple[tuple[str, str], ...]
    modes: tuple[str, ...]
    size: str = "tiny"
    seed: int = 0
    timeout_s: float = 1800.0
    own_mode_only: bool = False
    """Whether a fault that shows in one mode is tried in that mode alone."""
    level: str = "default"
    """How much of the suites bugs of the compiler are tried on: quick, default or nightly."""


class Bank(Protocol):
    """A set of faults, and the way to try one of them."""

    name: str

    def members(self) -> Sequence[Member]:
        """Its faults and its controls, in the order in which they are tried."""

    def tried(self, member: Member, asked: Asked) -> Tried:
        """Tries one, until a row is not `same`."""
