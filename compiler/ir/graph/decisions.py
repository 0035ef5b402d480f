"""What a compile says of a step's memory to whoever asked for it.

It says why each value is kept or made again, and which bytes are live after each step of the graphs that it builds.

    Told     := decisions: {graph: (Decision, ...)}  plans: (Plan, ...)
    Plan     := graph, is_backward, moments: (Moment, ...)
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field


class Reason(enum.Enum):
    """Why backward is given a value, or makes it again; the partitioner decides by these."""

    read = "backward reads it"
    size = "a size"
    input = "an input, which eager keeps too"
    held = "the user holds it, and eager keeps it too"
    source = "an input that what is recomputed reads"
    random = "random"
    effect = "its call has effects"
    library = "a library computes it"
    unsized = "its size is not known"
    policy = "kept by a policy of checkpoint"
    border = "it enters or leaves a checkpoint region"
    segment = "kept by budget: between two segments"
    keep = "cheaper to keep than recompute"
    free = "a view or a constant, which costs nothing"
    blocked = "recompute needs an input that eager does not keep"
    fused = "fused into its reader"
    stored = "cheaper to recompute than keep"
    asked = "asked for by a checkpoint region"
    budget = "asked for by the budget"


@dataclass(frozen=True, slots=True)
class Why:
    """A reason, with the picoseconds that keeping and that making again are estimated to cost, where they are known."""

    reason: Reason
    keep_ps: int | None = None
    again_ps: int | None = None


@dataclass(frozen=True, slots=True)
class Decision:
    """What becomes of one value that backward needs: `name` is its node, `call` what computes it.

    `bytes` are its own; of these `held_bytes` are live only because it is kept: none where an input or another kept
    value has the memory. `module` and `line` are where the user made it, `readers` the nodes of backward that read it.
    """

    name: str
    call: str
    is_saved: bool
    why: Why
    shape: str
    bytes: int
    held_bytes: int
    module: str
    line: str
    readers: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Moment:
    """After a step of the host function: the value that it made, and the bytes that are live of all it made so far."""

    made: str
    live_bytes: int


@dataclass(frozen=True, slots=True)
class Plan:
    """A graph that was built. Its moments begin with what it is given and frees: for backward, the kept values."""

    graph: str
    is_backward: bool
    moments: tuple[Moment, ...]


@dataclass(frozen=True, slots=True)
class Told:
    """What a listener has been told so far."""

    decisions: dict[str, tuple[Decision, ...]] = field(default_factory=dict)
    plans: list[Plan] = field(default_factory=list)
