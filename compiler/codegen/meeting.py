"""The text of a program of two stages whose instances meet in between.

    part(n):   sums of a part of some rows; who is the last of these rows joins all parts, and opens the gate
    rest(n):   what reads the same part again, beside what was joined

An instance takes a number for a part, and then one for the rest, before which it waits at the gate of its rows. Numbers
are taken in order, so that parts that are waited for were begun; those of its rows that nobody has begun yet, as no
more instances run at a time, an instance computes while it waits. So none waits for one that has not begun.
"""

from __future__ import annotations

from dataclasses import dataclass

MET = "parts_met"
"""The buffer of numbers, zero before a launch: the next part, the next rest, how many of the parts of each tile of rows
have come, and whether its gate is open."""
COUNTERS = 2


@dataclass(frozen=True, slots=True)
class Meeting:
    """`name` is the program, of these `arguments`; over each of `groups` tiles of rows so many instances as `count`
    meet. `sums`, `join` and `rest` are functions of a number and the arguments, of 64 bits with `is_wide`."""

    name: str
    arguments: str
    count: int
    groups: int
    is_wide: bool

    @property
    def sums(self) -> str:
        return f"{self.name}_sums"

    @property
    def join(self) -> str:
        return f"{self.name}_join"

    @property
    def rest(self) -> str:
        return f"{self.name}_rest"

    @property
    def size(self) -> int:
        """The numbers of `MET`."""
        return COUNTERS + 2 * self.groups

    def text(self, origins: tuple[str, ...]) -> str:
        wide = ".to(tl.int64)" if self.is_wide else ""
        gates, total = COUNTERS + self.groups, self.count * self.groups
        lines = [
            *("@triton.jit", f"def {self.name}_part(pid, {self.arguments}):"),
            f"    {self.sums}(pid{wide}, {self.arguments})",
            f"    g = pid // {self.count}",
            f"    if m.is_last({MET} + {COUNTERS} + g, {self.count}):",
            f"        {self.join}(g{wide}, {self.arguments})",
            f"        m.open_gate({MET} + {gates} + g)",
            *("", "", "@triton.jit", f"def {self.name}({self.arguments}):"),
            *(f"    # {origin}" for origin in origins),
            f"    part = m.next_number({MET})",
            f"    if part < {total}:",
            f"        {self.name}_part(part, {self.arguments})",
            f"    pid = m.next_number({MET} + 1)",
            f"    g = pid // {self.count}",
            f"    while m.is_closed({MET} + {gates} + g):",
            f"        if m.number_now({MET}) < (g + 1) * {self.count}:",
            f"            k = m.next_number({MET})",
            f"            if k < {total}:",
            f"                {self.name}_part(k, {self.arguments})",
            f"    {self.rest}(pid{wide}, {self.arguments})",
        ]
        return "\n".join(lines) + "\n"
