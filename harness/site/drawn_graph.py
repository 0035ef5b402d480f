"""A graph drawn from the text of its state: a node a value, in layers by its distance from the inputs.

reads("def forward(self, x):\\n  y = relu(x)\\n  return y")   ->   {"x": (), "y": ("x",), "output": ("y",)}
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence

import plotly.graph_objects as go

from assay.harness.site.plots import COLOURS, as_json

OUTPUT = "output"
MOST_NODES = 150
MOST_LABELLED = 3
"""Nodes beside each other that all have their names written; in wider graphs names show when pointed at."""
LAYER_REM, LEAST_REM, MOST_REM = 1.6, 18.0, 160.0

Reads = dict[str, tuple[str, ...]]


def reads(text: str) -> Reads:
    """What each value of a graph is computed from, in order; inputs first. Nothing for a text that is no graph."""
    try:
        tree = ast.parse(text)
    except SyntaxError:
        return {}
    found: Reads = {}
    for function in (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name == "forward"):
        found.update({argument.arg: () for argument in function.args.args if argument.arg != "self"})
        for statement in function.body:
            found.update(_read_by(statement, found))
    return found


def _read_by(statement: ast.stmt, known: Reads) -> Reads:
    """The value that a statement makes. `x = None` frees a value, and makes none."""
    if isinstance(statement, ast.Return):
        return {OUTPUT: tuple(_names(statement.value, known))}
    target = statement.targets[0] if isinstance(statement, ast.Assign) else getattr(statement, "target", None)
    value = getattr(statement, "value", None)
    is_made = isinstance(target, ast.Name) and value is not None
    if not is_made or (isinstance(value, ast.Constant) and value.value is None):
        return {}
    return {target.id: tuple(_names(value, known))} if isinstance(target, ast.Name) else {}


def _names(value: ast.expr | None, known: Reads) -> Iterator[str]:
    nodes = ast.walk(value) if value is not None else ()
    yield from dict.fromkeys(node.id for node in nodes if isinstance(node, ast.Name) and node.id in known)


def placed(found: Mapping[str, Sequence[str]]) -> dict[str, tuple[float, int]]:
    """Where each node stands: (across, layer). A node is under what it reads; in its layer, near the middle of it."""
    layers: dict[str, int] = {}
    for name, inputs in found.items():
        layers[name] = 1 + max((layers[each] for each in inputs), default=-1)
    for name, inputs in found.items():  # an input stands right above its first reader
        readers = [layers[other] for other, read in found.items() if name in read] if not inputs else []
        layers[name] = max(0, min(readers) - 1) if readers else layers[name]
    places: dict[str, tuple[float, int]] = {}
    for layer in range(max(layers.values(), default=-1) + 1):
        row = [name for name in found if layers[name] == layer]
        row.sort(key=lambda name: _middle([places[each][0] for each in found[name] if each in places]))
        places.update({name: (at - (len(row) - 1) / 2, layer) for at, name in enumerate(row)})
    return places


def _middle(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0


def drawn(text: str, name: str, lines: Mapping[str, str]) -> Mapping[str, str] | None:
    """The figure of a graph, or None for a text that is none. `lines` are the user's lines by the names of nodes."""
    everything = reads(text)
    if len(everything) < 2:
        return None
    found = dict(list(everything.items())[:MOST_NODES])
    places = placed(found)
    title = name if len(found) == len(everything) else f"{name}: the first {len(found)} of {len(everything)} values"
    figure = go.Figure()
    figure.add_scatter(**_edges(found, places), mode="lines", hoverinfo="skip", line={"color": "#8a949e", "width": 1})
    figure.add_scatter(**_nodes(found, places, lines))
    layers = 1 + max(layer for _, layer in places.values())
    for axis in (figure.update_xaxes, figure.update_yaxes):
        axis(visible=False)
    figure.update_layout(showlegend=False)
    height = min(MOST_REM, max(LEAST_REM, layers * LAYER_REM))
    return as_json(figure, title, f"{height:.0f}rem")


def _edges(
    found: Mapping[str, Sequence[str]], places: Mapping[str, tuple[float, int]]
) -> dict[str, list[float | None]]:
    across: list[float | None] = []
    down: list[float | None] = []
    for name, inputs in found.items():
        for each in inputs:
            across += [places[each][0], places[name][0], None]
            down += [-places[each][1], -places[name][1], None]
    return {"x": across, "y": down}


def _nodes(
    found: Mapping[str, Sequence[str]], places: Mapping[str, tuple[float, int]], lines: Mapping[str, str]
) -> dict[str, object]:
    layers = [layer for _, layer in places.values()]
    is_labelled = max(layers.count(layer) for layer in set(layers)) <= MOST_LABELLED
    colours = [COLOURS[1] if name == OUTPUT else COLOURS[0] if found[name] else COLOURS[2] for name in found]
    return {
        "x": [places[name][0] for name in found], "y": [-places[name][1] for name in found],
        "mode": "markers+text" if is_labelled else "markers", "text": list(found), "textposition": "middle right",
        "textfont": {"size": 10}, "marker": {"color": colours, "size": 9}, "cliponaxis": False,
        "customdata": [f"{name}<br>{lines.get(name, '')}" for name in found], "hovertemplate": "%{customdata}",
    }  # fmt: skip
