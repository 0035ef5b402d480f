"""How errors grow along the graphs of a case: a picture, and the table around the node that leaves eager."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import plotly.graph_objects as go

from assay.harness.locate.profile_worker import FACTOR, FLOOR, LEAST, first_that_leaves, known
from assay.harness.remember.store import Kept, Store
from assay.harness.site.plots import COLOURS, as_json

ROLE = "errors"
AROUND = 8
"""How many nodes the table shows before and behind the one that leaves eager."""


@dataclass(frozen=True, slots=True)
class ErrorProfile:
    """The errors of a row's nodes against float64. `leaves` is the place of the first one that leaves eager."""

    name: str
    lines: tuple[Mapping[str, Any], ...]
    leaves: int | None

    @property
    def shown(self) -> list[tuple[int, Mapping[str, Any]]]:
        """The lines of the table, each with its place."""
        middle = self.leaves or 0
        return list(enumerate(self.lines))[max(0, middle - AROUND) : middle + AROUND + 1]

    def figure(self) -> Mapping[str, str]:
        """Both errors over the nodes, on a logarithmic scale."""
        figure = go.Figure()
        for number, (field, said) in enumerate((("eager", "eager"), ("ours", "the backend"))):
            figure.add_scatter(
                x=list(range(len(self.lines))), y=[drawn(line[field]) for line in self.lines], name=said,
                mode="lines+markers", text=[line["node"].partition("    # ")[0] for line in self.lines],
                hovertemplate="%{text}<br>%{y:.2g}", line={"color": COLOURS[number], "dash": ("dot", "solid")[number]},
            )  # fmt: skip
        if self.leaves is not None:
            figure.add_vline(x=self.leaves, line={"dash": "dash", "color": COLOURS[1]}, annotation_text="leaves eager")
        figure.update_yaxes(type="log", exponentformat="e")
        figure.update_xaxes(title="node")
        return as_json(figure, f"Error against float64, as a share of the largest value: {self.name}")


def drawn(error: float | None) -> float | None:
    """Where an error is drawn; nowhere if it is not finite."""
    return None if error is None else max(error, LEAST)


def said(error: float | None) -> str:
    """An error as the table has it."""
    return f"{known(error):.1e}"


def error_profiles(store: Store, rows: Sequence[Kept]) -> list[ErrorProfile]:
    """Those that were kept of a case's rows."""
    found = []
    for row in rows:
        if digest := store.attached(row).get(ROLE):
            lines = tuple(json.loads(store.content(digest)))
            leaves = first_that_leaves(lines, FACTOR, FLOOR)
            found.append(ErrorProfile(f"{row.result.mode}, {row.result.backend}", lines, leaves))
    return found
