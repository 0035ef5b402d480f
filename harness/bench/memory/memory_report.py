"""What `assay memory` shows: live bytes over a step as a picture, and what is saved, what is recomputed and why.

JSON: {"schema": 1, "environment", "case", "size", "backend", "measured": {"points": [[ms, bytes]], "forward_ms",
       "peak_bytes", "kept_bytes"}, "planned", "values": [{"graph", "name", "is_saved", "reason", ...}], "budgets"}
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.text import Text

from assay.compiler.ir.graph.decisions import Reason
from assay.harness.bench.memory import memory_dial
from assay.harness.bench.memory.live_memory import Curve, Memory, Value
from assay.harness.bench.memory.memory_dial import Dial
from assay.harness.report.documents import SCHEMA, finite, megabytes, microseconds, render_page
from assay.harness.report.progress import table

COLUMNS, ROWS = 96, 10
EIGHTHS = " ▁▂▃▄▅▆▇█"
WIDTH, HEIGHT, LEFT, BOTTOM = 960, 280, 56, 24
"""Of a picture on the page, with the margins for its labels."""
MOST_ROWS = 12
"""Of a table in the terminal; the page and the JSON have all."""
FREE = Reason.free.value


@dataclass(frozen=True, slots=True)
class Shown:
    """What a run came to. `dial` is the memory/time curve over budgets, where it was asked for."""

    case: str
    size: str
    backend: str
    memory: Memory
    dial: Dial | None = None

    @property
    def saved(self) -> list[Group]:
        return grouped(value for value in self.memory.values if value.is_saved and value.held_bytes)

    @property
    def recomputed(self) -> list[Group]:
        return grouped(value for value in self.memory.values if not value.is_saved and value.reason != FREE)

    @property
    def held_anyway(self) -> list[Value]:
        """What is saved and takes no memory: inputs, and other views of what is saved."""
        return [value for value in self.memory.values if value.is_saved and not value.held_bytes]

    @property
    def free(self) -> list[Value]:
        return [value for value in self.memory.values if not value.is_saved and value.reason == FREE]


@dataclass(frozen=True, slots=True)
class Group:
    """Values that are alike but for the layer that they are of; `first` is one of them."""

    first: Value
    count: int
    bytes: int
    keep_ps: int | None
    again_ps: int | None

    @property
    def module(self) -> str:
        return self.first.module if self.count == 1 else _starred(self.first.module)

    @property
    def readers(self) -> str:
        found = [re.sub(r"_\d+$", "", name) for name in self.first.readers]
        return ", ".join(dict.fromkeys(found))


def grouped(values: Iterable[Value]) -> list[Group]:
    """The values by what they have in common, largest first. Views of a value count with it."""
    groups: dict[tuple[object, ...], list[Value]] = {}
    for value in values:
        alike = value.call, value.shape, _starred(value.module), value.line, value.reason
        groups.setdefault(alike, []).append(value)
    made = [
        Group(
            found[0],
            len(found),
            sum(value.held_bytes if value.is_saved else value.bytes for value in found),
            _sum(value.keep_ps for value in found),
            _sum(value.again_ps for value in found),
        )
        for found in groups.values()
    ]
    return sorted(made, key=lambda group: -group.bytes)


def _starred(module: str) -> str:
    """`encoder.layer.3.dense` as `encoder.layer.*.dense`."""
    return re.sub(r"(?<![^.])\d+(?![^.])", "*", module)


def _sum(values: Iterable[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


# ---- the terminal


def show(console: Console, shown: Shown) -> None:
    memory = shown.memory
    console.print(f"{shown.case}, {shown.size}, {shown.backend}: one training step", style="bold")
    console.print(summary(shown), soft_wrap=True)
    console.print(picture(memory.measured))
    if memory.values:
        _show_groups(console, "Saved for backward", shown.saved, "again us")
        count = len(shown.held_anyway)
        console.print(f"{count} more take no memory: inputs, and views of them and of what is saved.\n")
        _show_groups(console, "Recomputed in backward", shown.recomputed, "again us")
        console.print(f"{len(shown.free)} more are views or constants, which cost nothing.")
    else:
        console.print(f"{shown.backend} says nothing of what it saves.")
    if shown.dial is not None:
        memory_dial.show(console, shown.dial)


def summary(shown: Shown) -> str:
    """The figures of a step, in sentences."""
    measured, plan = shown.memory.measured, shown.memory.planned
    at, peak = measured.peak
    where = "forward" if at <= measured.forward_ms else "backward"
    beside = "" if plan is None else f" ({megabytes(plan.peak[1])} planned)"
    text = f"Peak {megabytes(peak)} MB in {where}{beside}; {megabytes(measured.kept_bytes)} MB live between the two."
    if not shown.memory.values:
        return text
    saved, again = sum(group.bytes for group in shown.saved), shown.recomputed
    cost = microseconds(_sum(group.again_ps for group in again) or 0)
    return (
        f"{text} Saved: {megabytes(saved)} MB. "
        f"Recomputed: {megabytes(sum(group.bytes for group in again))} MB, an estimated {cost} us."
    )


def _show_groups(console: Console, title: str, groups: Sequence[Group], cost: str) -> None:
    rows = table((title, "shape", "made at", "read by", "why"), ("MB", "×", "keep us", cost))  # noqa: RUF001
    for group in groups[:MOST_ROWS]:
        first = group.first
        made_at = " ".join(filter(None, (group.module, first.line)))
        costs = microseconds(group.keep_ps), microseconds(group.again_ps)
        rows.add_row(first.call.removesuffix(".default"), first.shape, made_at, _cut(group.readers), first.reason,
                     megabytes(group.bytes), str(group.count), *costs)  # fmt: skip
    console.print(rows)
    rest = groups[MOST_ROWS:]
    if rest:
        console.print(f"and {megabytes(sum(group.bytes for group in rest))} MB in {len(rest)} smaller groups.")


def _cut(text: str, most: int = 44) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


def picture(curve: Curve, columns: int = COLUMNS, rows: int = ROWS) -> Text:
    """The live bytes in blocks: each column is a span of the step, and as high as the most that is live in it."""
    peak = max(curve.peak[1], 1)
    levels = [8 * rows * most / peak for most in highest(curve, columns)]
    border = round(columns * curve.forward_ms / curve.end_ms) if curve.end_ms else columns
    text = Text()
    for row in reversed(range(rows)):
        text.append(f"{megabytes(peak * (row + 1) / rows):>8} ┤")
        line = "".join(EIGHTHS[min(max(round(level - 8 * row), 0), 8)] for level in levels)
        text.append(line[:border], style="cyan").append(line[border:], style="magenta").append("\n")
    forward, backward = f"forward {curve.forward_ms:.1f} ms", f"backward {curve.end_ms - curve.forward_ms:.1f} ms"
    text.append(f"{'MB':>8} └" + forward[:border].ljust(border, "─") + backward.ljust(columns - border, "─"))
    return text


def highest(curve: Curve, columns: int) -> list[int]:
    """The most that is live in each of so many equal spans of the step."""
    found, end = [0] * columns, curve.end_ms or 1.0
    for (at, level), (until, _) in zip(curve.points, [*curve.points[1:], (end, 0)], strict=True):
        first = min(int(columns * at / end), columns - 1)
        last = min(math.ceil(columns * until / end), columns)
        for column in range(first, max(first + 1, last)):
            found[column] = max(found[column], level)
    return found


# ---- JSON and the page


def document(shown: Shown, environment: Mapping[str, Any]) -> dict[str, Any]:
    """The JSON report as plain data."""
    memory, dial = shown.memory, shown.dial
    return finite({
        "schema": SCHEMA, "environment": dict(environment),
        "case": shown.case, "size": shown.size, "backend": shown.backend,
        "measured": _curve(memory.measured), "planned": memory.planned and _curve(memory.planned),
        "values": [dataclasses.asdict(value) for value in memory.values],
        "budgets": [dataclasses.asdict(row) for row in dial.rows] if dial else [],
    })  # fmt: skip


def _curve(curve: Curve) -> dict[str, Any]:
    return dataclasses.asdict(curve) | {"peak_bytes": curve.peak[1], "kept_bytes": curve.kept_bytes}


def render_html(shown: Shown, environment: Mapping[str, Any]) -> str:
    """One page with its style and its pictures inside; it loads nothing."""
    measured, plan = shown.memory.measured, shown.memory.planned
    top = max(measured.peak[1], plan.peak[1] if plan else 0, 1)
    scale = _Scale(measured.end_ms or 1.0, top)
    return render_page(
        "memory.html.jinja",
        shown=shown,
        summary=summary(shown),
        scale=scale,
        live=scale.path(measured) + f" L{scale.x(measured.end_ms):.1f},{scale.y(0):.1f} Z",
        planned=scale.path(plan) if plan else "",
        peak=measured.peak,
        budgets=_dial_picture(shown.dial),
        environment=environment,
    )


@dataclass(frozen=True, slots=True)
class _Scale:
    """Where a picture has a value: `right` and `top` are the largest of both axes, `left` where the first begins."""

    right: float
    top: float
    left: float = 0.0
    width: int = WIDTH
    height: int = HEIGHT

    def x(self, value: float) -> float:
        return LEFT + (self.width - LEFT - 8) * (value - self.left) / ((self.right - self.left) or 1.0)

    def y(self, value: float) -> float:
        return self.height - BOTTOM - (self.height - BOTTOM - 12) * value / self.top

    def path(self, curve: Curve) -> str:
        """Steps: each level holds until the next."""
        moves = [f"M{self.x(0):.1f},{self.y(0):.1f}"]
        moves += [f"H{self.x(max(at, 0.0)):.1f} V{self.y(live):.1f}" for at, live in curve.points]
        return " ".join(moves)

    @property
    def ticks(self) -> list[float]:
        return [self.top * quarter / 4 for quarter in range(5)]


def _dial_picture(dial: Dial | None) -> dict[str, Any] | None:
    """Peaks over times, a dot a budget."""
    rows = [row for row in dial.rows if row.ms and row.peak_bytes] if dial else []
    if not rows:
        return None
    times, peaks = [row.ms or 0.0 for row in rows], [row.peak_bytes or 0 for row in rows]
    scale = _Scale(max(times) * 1.05, max(peaks) * 1.05, min(times) * 0.95)
    dots = [(scale.x(ms), scale.y(peak), row) for ms, peak, row in zip(times, peaks, rows, strict=True)]
    line = " ".join(f"{x:.1f},{y:.1f}" for x, y, row in dots if row.budget is not None)
    return {"scale": scale, "dots": dots, "line": line}
