"""Figures, by Plotly: data that its library on the page draws."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import plotly.graph_objects as go

from assay.harness.outcome import VERDICTS
from assay.harness.remember.store import Kept
from assay.harness.track.regressions import Regression, Series

MOST_BARS = 10
MOST_LETTERS = 26
"""Of a case's name beside its bar: a telephone has no room for more."""
OF_VERDICTS = {
    "same": "#3b7d3b", "fell-back": "#c9a227", "diverged": "#b3261e", "crash": "#6d1f7a", "timeout": "#c2571a",
    "no-oracle": "#7f8a94", "reference-unstable": "#a9b1b8", "unsupported": "#5b7fa6",
}  # fmt: skip
COLOURS = ("#2f6f9f", "#c2571a", "#3b7d3b", "#7a4fa3", "#8a6d1d")


def as_json(figure: go.Figure, name: str, height: str = "") -> Mapping[str, str]:
    """A figure for a page: a name for its place, what Plotly is given, how high it is if not as high as most."""
    figure.update_layout(
        margin={"l": 55, "r": 15, "t": 40, "b": 60}, paper_bgcolor="rgba(0,0,0,0)", plot_bgcolor="rgba(0,0,0,0)",
        title={"text": name, "font": {"size": 14}}, legend={"orientation": "h", "y": -0.18}, template="none",
    )  # fmt: skip
    return {"name": name, "data": str(figure.to_json()).replace("</", "<\\/"), "height": height}


def trends(series: Sequence[Series], regressions: Sequence[Regression]) -> list[Mapping[str, str]]:
    """A figure for each series, with a line at each commit at which it changed."""
    return [_trend(each, [found for found in regressions if found.series == each.name]) for each in series]


def _trend(series: Series, found: Sequence[Regression]) -> Mapping[str, str]:
    figure = go.Figure()
    figure.add_scatter(
        x=list(range(len(series.values))), y=list(series.values), mode="lines+markers", name=series.unit,
        text=list(series.commits), hovertemplate="%{text}: %{y:.4g}", line={"color": COLOURS[0]},
    )  # fmt: skip
    for each in found:
        figure.add_vline(x=each.place, line={"dash": "dot", "color": COLOURS[1]}, annotation_text=each.said)
    figure.update_xaxes(tickvals=list(range(len(series.commits))), ticktext=[c[:7] for c in series.commits])
    figure.update_yaxes(title=series.unit, rangemode="tozero")
    return as_json(figure, series.name)


def bars(rows: Sequence[Kept]) -> list[Mapping[str, str]]:
    """Compile time and speed of the cases that take longest, and verdicts by backend."""
    figures = (_verdicts(rows), _longest(rows), _speeds(rows))
    return [each for each in figures if not each["data"].startswith('{"data":[]')]


def _verdicts(rows: Sequence[Kept]) -> Mapping[str, str]:
    backends = sorted({row.result.backend.partition(",")[0] for row in rows})
    figure = go.Figure()
    for verdict in VERDICTS:
        counts = [sum(_is(row, backend, verdict) for row in rows) for backend in backends]
        if any(counts):
            figure.add_bar(
                x=counts, y=backends, orientation="h", name=verdict, marker={"color": OF_VERDICTS.get(verdict)}
            )
    figure.update_layout(barmode="stack")
    return as_json(figure, "Verdicts by backend")


def _is(row: Kept, backend: str, verdict: str) -> bool:
    return row.result.backend.partition(",")[0] == backend and row.result.verdict == verdict


def _longest(rows: Sequence[Kept]) -> Mapping[str, str]:
    timed = [row for row in rows if row.result.compile_s]
    cases = sorted({row.result.case for row in timed}, key=lambda case: -_most(timed, case))[:MOST_BARS]
    return as_json(_by_backend(timed, cases, "compile_s"), "First call, seconds")


def _most(rows: Sequence[Kept], case: str) -> float:
    return max(row.result.compile_s or 0.0 for row in rows if row.result.case == case)


def _speeds(rows: Sequence[Kept]) -> Mapping[str, str]:
    timed = [row for row in rows if row.result.ms and row.result.verdict == "same"]
    cases = sorted({row.result.case for row in timed})[:MOST_BARS]
    return as_json(_by_backend(timed, cases, "ms"), "One call, milliseconds")


def _by_backend(rows: Sequence[Kept], cases: Sequence[str], name: str) -> go.Figure:
    figure = go.Figure()
    for place, backend in enumerate(sorted({row.result.backend for row in rows})):
        found: dict[str, Any] = {row.result.case: row.result for row in rows if row.result.backend == backend}
        values = [getattr(found[case], name) if case in found else None for case in cases]
        colour = {"color": COLOURS[place % len(COLOURS)]}
        figure.add_bar(
            x=values, y=[short(case) for case in cases], orientation="h", name=backend, marker=colour,
            text=list(cases), textposition="none", hovertemplate="%{text}: %{x:.4g}",
        )  # fmt: skip
    figure.update_yaxes(autorange="reversed", tickfont={"size": 10})
    return figure


def short(case: str) -> str:
    """The last part of a case's name, cut to what there is room for."""
    name = case.rpartition(".")[2]
    return name if len(name) <= MOST_LETTERS else f"{name[: MOST_LETTERS - 1]}…"


def read(text: str) -> Any:
    """What a figure's data are."""
    return json.loads(text.replace("<\\/", "</"))
