"""What a run of one case against eager came to: the rows of the JSON report."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

VERDICTS = ("same", "fell-back", "diverged", "reference-unstable", "no-oracle", "unsupported", "timeout", "crash")


@dataclass(frozen=True, slots=True)
class Difference:
    """One observed field that differs.

    `field` is values, stride, gradient, alias, version, error and so on. `path` is where the value is in the call or
    result (`output.logits`, `parameter.head.weight.grad`). `detail` is a sentence with the numbers and the rule that
    decided.
    """

    field: str
    path: str
    detail: str
    act: str = ""
    """What the act was in which it differs (harness/protocol/acts.py)."""
    kind: str = "differs"
    """`unstable` where eager itself does not settle the field, `no-oracle` where nothing anchors it."""


@dataclass(frozen=True, slots=True)
class Result:
    """One case in one mode on one backend. Times are medians; `None` where the run did not get that far.

    `ms_spread`, `eager_ms_spread` and `speed_spread` are the quartiles of a call's time and of eager's time over it.
    `nodes` counts those that ran in eager too, and `eager` has how many did, by the backend's reason. `begun` counts
    what begins late, or not each time, and was seen in use: graphs restored, recorded and replayed, and kernels tuned.

    Units: the suffix of a name, `_ms` or `_s`; a spread has the unit of what it is of, and that of `speed` is a ratio.
    """

    case: str
    mode: str
    backend: str
    verdict: str
    differences: tuple[Difference, ...] = ()
    eager_ms: float | None = None
    ms: float | None = None
    compile_s: float | None = None
    nodes: int | None = None
    nodes_generated: int | None = None
    fallbacks: dict[str, int] = field(default_factory=dict)
    graph_breaks: int | None = None
    detail: str = ""
    eager: dict[str, int] = field(default_factory=dict)
    eager_ms_spread: tuple[float, float] | None = None
    ms_spread: tuple[float, float] | None = None
    speed_spread: tuple[float, float] | None = None
    begun: dict[str, int] = field(default_factory=dict)
    is_warm: bool = False
    """Whether it is of a process that found its caches filled."""
    dtypes: tuple[str, ...] = ()
    """Of all tensors that the call can reach."""
    layouts: tuple[str, ...] = ()
    """Of the same (harness/observe/traits.py)."""

    @property
    def is_noise(self) -> bool:
        """Whether its times differ so much between rounds that they are in no mean."""
        return self.speed_spread is not None and is_noise(self.speed_spread)


TRAITS = ("dtypes", "layouts")
SPREADS = ("eager_ms_spread", "ms_spread", "speed_spread")
MOST_SPREAD = 1.5
"""How far apart the quartiles of a measurement may be, as a ratio."""


def is_noise(spread: tuple[float, float]) -> bool:
    """Whether quartiles are too far apart for a measurement."""
    first, third = spread
    return third > MOST_SPREAD * first


def read(row: dict[str, Any]) -> Result:
    """The result of which `row` is the JSON form."""
    differences = tuple(Difference(**difference) for difference in row["differences"])
    spreads = {name: tuple(value) for name in SPREADS if (value := row.get(name)) is not None}
    traits = {name: tuple(row.get(name, ())) for name in TRAITS}
    return Result(**{**row, **spreads, **traits, "differences": differences})
