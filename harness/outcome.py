"""What a run of one case against eager came to: the rows of the JSON report."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

VERDICTS = ("same", "diverged", "reference-unstable", "no-oracle", "unsupported", "timeout", "crash")


@dataclass(frozen=True, slots=True)
class Difference:
    """One observed field that differs: `field` (values, stride, gradient, alias, version, error, ...), the path of
    the value in the call or result (`output.logits`, `parameter.head.weight.grad`), and a sentence with the numbers
    and the rule that decided."""

    field: str
    path: str
    detail: str
    act: str = ""
    """What the act was in which it differs (harness/protocol.py)."""
    kind: str = "differs"
    """`unstable` where eager itself does not settle the field, `no-oracle` where nothing anchors it."""


@dataclass(frozen=True, slots=True)
class Result:
    """One case in one mode on one backend. Times are medians; `None` where the run did not get that far."""

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


def read(row: dict[str, Any]) -> Result:
    """The result of which `row` is the JSON form."""
    differences = tuple(Difference(**difference) for difference in row["differences"])
    return Result(**{**row, "differences": differences})
