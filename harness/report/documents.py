"""Reports of a run: totals, the JSON document, the HTML page.

    {"schema": 1, "environment": {...}, "interrupted": false, "totals": {...},
     "results": [{"case", "mode", "backend", "verdict", "differences": [{"field", "path", "detail"}],
                  "eager_ms", "ms", "compile_s", "nodes", "nodes_generated", "fallbacks": {"aten.x": n},
                  "graph_breaks", "detail", "passes", "notes",
                  "eager": {reason: nodes}, "eager_ms_spread", "ms_spread", "speed_spread"}]}

A spread is the two quartiles. A measurement whose speed has quartiles too far apart is noise: it is marked `~`, and in
no mean.

JSON has no NaN and no infinity: a number that is neither measured nor finite is null.
"""

from __future__ import annotations

import dataclasses
import json
import math
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jinja2

from assay.harness.judge.ledger import Judgement
from assay.harness.measure import geometric_mean, ratio
from assay.harness.outcome import VERDICTS, Result

SCHEMA = 1
STDOUT = Path("-")
"""As the path of a report: standard output, which then holds nothing else."""
UNKNOWN = "–"  # noqa: RUF001  an en dash is what a reader expects in an empty cell


@dataclass(frozen=True, slots=True)
class Row:
    """A result, and what the ledger makes of it."""

    result: Result
    judgement: Judgement

    @property
    def is_known(self) -> bool:
        """Not `same`, and excused by the ledger."""
        return self.judgement.passes and self.result.verdict != "same"

    @property
    def speed(self) -> float | None:
        """eager_ms / ms, above 1 where the backend is faster; None for a result that is not `same`."""
        return ratio(self.result.eager_ms, self.result.ms) if self.result.verdict == "same" else None

    @property
    def shown_speed(self) -> str:
        """The speed, marked where it is noise."""
        return ("~" if self.speed is not None and self.result.is_noise else "") + times(self.speed)


@dataclass(frozen=True, slots=True)
class Totals:
    """What a run came to. Means and sums are over the rows whose verdict is `same`, all others are in `verdicts`; nodes
    are those of `fell-back` rows too. `noise` is how many rows have times that are in no mean."""

    rows: int
    passed: int
    verdicts: dict[str, int]
    speed: float | None
    compile_s: float
    nodes: int
    nodes_generated: int
    graph_breaks: int
    noise: int = 0

    @property
    def generated(self) -> float | None:
        return self.nodes_generated / self.nodes if self.nodes else None


def total(rows: Sequence[Row]) -> Totals:
    same = [row.result for row in rows if row.result.verdict == "same"]
    right = [row.result for row in rows if row.result.verdict in ("same", "fell-back")]
    counts = Counter(row.result.verdict for row in rows)
    return Totals(
        rows=len(rows),
        passed=sum(row.judgement.passes for row in rows),
        verdicts={verdict: counts[verdict] for verdict in VERDICTS if counts[verdict]},
        speed=geometric_mean(row.speed for row in rows if not row.result.is_noise),
        compile_s=sum(result.compile_s or 0.0 for result in same),
        nodes=sum(result.nodes or 0 for result in right),
        nodes_generated=sum(result.nodes_generated or 0 for result in right),
        graph_breaks=sum(result.graph_breaks or 0 for result in same),
        noise=sum(row.speed is not None and row.result.is_noise for row in rows),
    )


def document(rows: Sequence[Row], environment: Mapping[str, Any], *, interrupted: bool = False) -> dict[str, Any]:
    """The JSON report as plain data."""
    totals = total(rows)
    return finite(
        {
            "schema": SCHEMA,
            "environment": dict(environment),
            "interrupted": interrupted,
            "totals": {**dataclasses.asdict(totals), "generated": totals.generated},
            "results": [{**dataclasses.asdict(row.result), **dataclasses.asdict(row.judgement)} for row in rows],
        }
    )


def finite(value: Any) -> Any:
    """The same data with NaN and infinities as None, which JSON has no words for."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite(item) for item in value]
    return value


def write_json(path: Path, data: Mapping[str, Any]) -> None:
    """Writes a report to a file, or to standard output where the path is `STDOUT`. A file is written whole or not at
    all, as the process may be killed."""
    text = json.dumps(data, indent=2, allow_nan=False) + "\n"
    if path == STDOUT:
        sys.stdout.write(text)
    elif path.exists() and not path.is_file():  # a device or a pipe
        path.write_text(text, encoding="utf-8")
    else:
        part = path.with_name(f"{path.name}.part")
        part.write_text(text, encoding="utf-8")
        part.replace(path)


def milliseconds(value: float | None) -> str:
    """`0.0123`, `4.56`, `78.9`, `1234`: three significant digits below a thousand."""
    if value is None:
        return UNKNOWN
    return f"{value:.0f}" if value >= 99.95 else f"{value:#.3g}"


def seconds(value: float | None) -> str:
    return UNKNOWN if value is None else f"{value:.2f}"


def times(value: float | None) -> str:
    return UNKNOWN if value is None else f"{value:.2f}×"  # noqa: RUF001


def percent(value: float | None) -> str:
    return UNKNOWN if value is None else f"{value:.0%}"


def megabytes(value: float | None) -> str:
    return UNKNOWN if value is None else f"{value / 2**20:.1f}" if value >= 2**20 else f"{value / 2**20:.3g}"


def microseconds(value: float | None) -> str:
    """Of picoseconds."""
    return UNKNOWN if value is None else f"{value / 1e6:.3g}" if value < 1e9 else f"{value / 1e6:.0f}"


def fraction(part: int | None, whole: int | None) -> str:
    return UNKNOWN if part is None or whole is None else f"{part}/{whole}"


def count(value: int | None) -> str:
    return UNKNOWN if value is None else str(value)


FORMATS = {
    "milliseconds": milliseconds,
    "seconds": seconds,
    "times": times,
    "percent": percent,
    "count": count,
    "megabytes": megabytes,
    "microseconds": microseconds,
}


@dataclass(frozen=True, slots=True)
class Bar:
    """A bar in percent of its track: where it begins and how long it is."""

    start: float
    length: float
    is_gain: bool = True


def speed_bar(speed: float | None, widest: float) -> Bar | None:
    """From the middle (as fast as eager) to the right for faster, to the left for slower; logarithmic.

    `widest` is the largest |log2(speed)| of the page, which fills half of the track.
    """
    if not speed:
        return None
    length = 50 * abs(math.log2(speed)) / widest
    return Bar(50 if speed >= 1 else 50 - length, length, speed >= 1)


def widest_speed(rows: Sequence[Row]) -> float:
    """The largest |log2(speed)|, at least 1: a page of equal speeds shows short bars."""
    return max([abs(math.log2(row.speed)) for row in rows if row.speed] + [1.0])


def fallback_totals(rows: Sequence[Row]) -> list[tuple[str, int]]:
    """Every operator that ran in ATen, summed over the rows, most frequent first."""
    summed: Counter[str] = Counter()
    for row in rows:
        summed.update(row.result.fallbacks)
    return summed.most_common()


def render_html(rows: Sequence[Row], environment: Mapping[str, Any], *, interrupted: bool = False) -> str:
    """One page with its style inside; it loads nothing."""
    widest = widest_speed(rows)
    longest = max([row.result.compile_s or 0.0 for row in rows] + [1e-9])
    return render_page(
        "report.html.jinja",
        rows=[(row, speed_bar(row.speed, widest), 100 * (row.result.compile_s or 0.0) / longest) for row in rows],
        totals=total(rows),
        environment=environment,
        fallbacks=fallback_totals(rows),
        backends=sorted({row.result.backend for row in rows}),
        interrupted=interrupted,
        fraction=fraction,
    )


def render_page(template: str, **values: Any) -> str:
    """A page of the folder of templates."""
    templates = jinja2.Environment(
        loader=jinja2.PackageLoader("assay.harness"), autoescape=True, undefined=jinja2.StrictUndefined,
        trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    templates.filters.update(FORMATS)
    return templates.get_template(template).render(**values)


def write_html(directory: Path, page: str) -> Path:
    """Writes `directory/index.html` and returns its path."""
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / "index.html"
    path.write_text(page, encoding="utf-8")
    return path
