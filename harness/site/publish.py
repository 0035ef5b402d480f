"""Writes the site of a store: one folder of static pages that load nothing from elsewhere.

    index.html            the sentence, what is new, verdicts by backend and suite, dtype and layout, every row with
                          filters
    causes/NAME.html      a cause: its rows, its repro, the text of an issue
    cases/NAME.html       a case that is not as eager everywhere, or whose step was taken apart: what differs, how
                          errors grow, its graphs drawn, generated code beside the user's lines, each state
    trends.html           what is measured from commit to commit, with the points at which it changed
    compile.html          where compile time goes, by case and by stage, and how fast the result is
    kernels.html          the kernels of a few steps against the roofline
    memory.html           the bytes that are live along these steps
    feed.atom             the regressions, as a feed
    data/rows.js          the rows, as data that the pages read
    data/verdict.json     what `assay triage --json` says

The links are stable: a cause is named by its signature, a case by its name, a filter by what stands behind `#`.
"""

from __future__ import annotations

import json
import re
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from operator import attrgetter
from pathlib import Path
from typing import Any

import jinja2
import plotly
from markupsafe import Markup

from assay.harness.outcome import VERDICTS
from assay.harness.remember.store import Kept, Store
from assay.harness.remember.verdict_on_run import Cause, Verdict, document
from assay.harness.report.documents import FORMATS, finite
from assay.harness.report.triage import speed
from assay.harness.site.drawn_graph import drawn
from assay.harness.site.errors import error_profiles, said
from assay.harness.site.feed import atom
from assay.harness.site.plots import bars, trends
from assay.harness.site.profiles import profiles_of, roofline, stage_bars, timelines
from assay.harness.site.states import changes_of, is_graph
from assay.harness.site.user_lines import beside, lines_of
from assay.harness.track.regressions import Regression, regressions_of, series_of

PLOTLY = "plotly.min.js"
STATIC = ("site.css", "site.js")
COLUMNS = (
    "case", "mode", "backend", "verdict", "field", "state", "cause", "suite", "dtype", "layout", "compile_s", "speed",
)  # fmt: skip
TRAITS = {"dtype": "dtypes", "layout": "layouts"}
"""The columns that hold several words, by where a row has them."""


@dataclass(frozen=True, slots=True)
class Page:
    """A file of the site."""

    path: str
    template: str
    values: Mapping[str, Any]


def publish(store: Store, verdict: Verdict, folder: Path, parts_said: Sequence[str] = ()) -> Path:
    """Writes all pages into a folder, and returns the first of them. Pages of an earlier night are written over.

    `parts_said`: what each part of a night came to, a line each.
    """
    templates = jinja2.Environment(
        loader=jinja2.PackageLoader("assay.harness", "templates/site"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    templates.filters.update({**FORMATS, "breakable": breakable, "error": said})
    found = regressions_of(store.samples())
    _copy_static(folder)
    _write(folder / "data" / "rows.js", f"window.ROWS = {_script(rows_of(verdict))};\n")
    _write(folder / "data" / "verdict.json", json.dumps(finite(document(verdict)), indent=1))
    _write(folder / "feed.atom", atom(verdict, found))
    for page in _pages(store, verdict, found):
        depth = page.path.count("/")
        values = {"root": "../" * depth, "verdict": verdict, "slug": slug, "parts_said": parts_said, **page.values}
        _write(folder / page.path, templates.get_template(page.template).render(values))
    return folder / "index.html"


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def _copy_static(folder: Path) -> None:
    (folder / "static").mkdir(parents=True, exist_ok=True)
    for name in STATIC:
        text = files("assay.harness").joinpath("templates", "site", name).read_text(encoding="utf-8")
        _write(folder / "static" / name, text)
    shutil.copyfile(Path(str(plotly.__file__)).parent / "package_data" / PLOTLY, folder / "static" / PLOTLY)


def _pages(store: Store, verdict: Verdict, found: Sequence[Regression]) -> Iterator[Page]:
    causes = _cause_of(verdict)
    tables = {"suite": matrix(verdict.rows, lambda row: (suite_of(row.result.case),))}
    tables |= {name: matrix(verdict.rows, attrgetter(f"result.{where}")) for name, where in TRAITS.items()}
    seen = {row.result.verdict for row in verdict.rows}
    verdicts = [name for name in VERDICTS if name in seen]  # a column of nothing hides the others on a narrow screen
    yield Page("index.html", "index.html.jinja", {"tables": tables, "verdicts": verdicts})
    lines = trends(series_of(store.samples()), found)
    yield Page("trends.html", "trends.html.jinja", {"figures": lines, "regressions": found})
    profiles = profiles_of(store, verdict.run)
    yield Page("compile.html", "compile.html.jinja", {"figures": [*stage_bars(profiles), *bars(verdict.rows)]})
    yield Page("kernels.html", "kernels.html.jinja", {"figures": roofline(profiles), "profiles": profiles})
    yield Page("memory.html", "memory.html.jinja", {"figures": timelines(profiles), "profiles": profiles})
    for cause in verdict.causes:
        yield Page(f"causes/{cause.cluster.signature[:16]}.html", "cause.html.jinja", {"cause": cause})
    apart = {each.case: each.states for each in profiles}
    for case, rows in by_case(verdict.rows).items():
        if case in apart or any(row.result.verdict != "same" for row in rows):
            states = _states(store, rows) or apart.get(case, ())
            values = {"case": case, "rows": rows, "causes": causes, **shown_of(states)}
            yield Page(f"cases/{slug(case)}.html", "case.html.jinja", values | {"errors": error_profiles(store, rows)})


def _states(store: Store, rows: Sequence[Kept]) -> Sequence[Mapping[str, str]]:
    """The states that were kept of the first row that has any."""
    for row in rows:
        digest = store.attached(row).get("states")
        if digest is not None:
            found: list[Mapping[str, str]] = json.loads(store.content(digest))
            return found
    return ()


def shown_of(states: Sequence[Mapping[str, str]]) -> dict[str, Any]:
    """What a page shows of the states: the first of each graph drawn, code beside lines, what each state changed."""
    lines = lines_of(states)
    first = {state["graph"]: state for state in reversed(states) if is_graph(state["text"])}
    figures = [
        drawn(state["text"], f"{graph}: {state['state']}", lines.get(graph, {}))
        for graph, state in sorted(first.items())
    ]
    return {
        "changes": changes_of(states), "kernels": beside(states),
        "figures": [figure for figure in figures if figure is not None],
    }  # fmt: skip


def breakable(name: str) -> Markup:
    """A name as HTML in which a line may break behind each word."""
    return Markup("<wbr>").join(re.split(r"(?<=[_.])", name))


def slug(name: str) -> str:
    """A case's name as a file's."""
    return re.sub(r"[^\w.-]+", "_", name)


def _script(value: Any) -> str:
    """JSON that may stand in a script: it closes none."""
    return json.dumps(value, separators=(",", ":")).replace("</", "<\\/")


def by_case(rows: Sequence[Kept]) -> dict[str, list[Kept]]:
    found: dict[str, list[Kept]] = {}
    for row in rows:
        found.setdefault(row.result.case, []).append(row)
    return found


def _cause_of(verdict: Verdict) -> dict[tuple[str, str, str], Cause]:
    return {row.key: cause for cause in verdict.causes if cause.state != "fixed" for row in cause.rows}


def suite_of(case: str) -> str:
    return case.partition(".")[0]


def rows_of(verdict: Verdict) -> dict[str, Any]:
    """The rows as columns' names and lists, what is new first, then what is not as eager."""
    causes = _cause_of(verdict)
    order = {"new": 0, "known": 1, "excused": 2}

    def place(row: Kept) -> tuple[int, bool]:
        cause = causes.get(row.key)
        return (order[cause.state] if cause else 3, row.result.verdict == "same")

    return {"columns": COLUMNS, "rows": [_row(row, causes) for row in sorted(verdict.rows, key=place)]}


def _row(row: Kept, causes: Mapping[tuple[str, str, str], Cause]) -> list[Any]:
    cause, result = causes.get(row.key), row.result
    fields = ",".join(dict.fromkeys(each.field for each in result.differences))
    ratio = speed({"eager_ms": result.eager_ms, "ms": result.ms}) if result.verdict == "same" else None
    numbers = [round(value, 4) if value is not None else None for value in (result.compile_s, ratio)]
    named = (cause.state, cause.cluster.signature[:16]) if cause else ("", "")
    words = [suite_of(result.case), *(" ".join(getattr(result, name)) for name in TRAITS.values())]
    return [result.case, result.mode, result.backend, result.verdict, fields, *named, *words, *numbers]


def matrix(rows: Sequence[Kept], words: Callable[[Kept], Sequence[str]]) -> dict[str, dict[str, Counter[str]]]:
    """Verdicts counted by backend and word. A row that has several words counts for each of them."""
    found: dict[str, dict[str, Counter[str]]] = {}
    for row in rows:
        for word in words(row):
            backend = found.setdefault(row.result.backend.partition(",")[0], {})
            backend.setdefault(word, Counter())[row.result.verdict] += 1
    return {backend: dict(sorted(counts.items())) for backend, counts in found.items()}
