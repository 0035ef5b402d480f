"""The site: every page is written, text is escaped, nothing is loaded from elsewhere, links lead to pages."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import pytest

pytest.importorskip("sqlalchemy", reason="the store needs the extra `nightly`")
pytest.importorskip("alembic", reason="the store needs the extra `nightly`")
pytest.importorskip("plotly", reason="the figures need the extra `nightly`")

from assay.harness.outcome import VERDICTS
from assay.harness.remember.store import Store
from assay.harness.remember.verdict_on_run import base_of, judge_run
from assay.harness.site.publish import publish
from assay.harness.site.states import changes_of
from tests.harness.site.night import night

LINK = re.compile(r'(?:href|src)="([^"#]+)[^"]*"')


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("site")
    with Store.open(f"sqlite:///{folder}/store.sqlite") as store:
        run = night(store)
        verdict = judge_run(store, run, base_of(store, run))
        yield publish(store, verdict, folder / "site", ["zoo  9 rows in 60 s, cut short"]).parent


def test_publish_links_lead_to_pages_of_the_folder(site: Path) -> None:
    pages = list(site.rglob("*.html"))
    assert len(pages) > 10
    for page in pages:
        for link in LINK.findall(page.read_text()):
            assert link.startswith("data:,") or (page.parent / link).exists(), (page, link)


def test_publish_says_what_was_run_and_what_locates_a_cause(site: Path) -> None:
    assert "<li>zoo  9 rows in 60 s, cut short</li>" in (site / "index.html").read_text()
    pages = [page.read_text() for page in (site / "causes").iterdir()]
    assert any("assay repro 'semantics.case_1' --mode infer --backend inductor,dynamic" in page for page in pages)


def test_publish_escapes_what_rows_say(site: Path) -> None:
    case = (site / "cases" / "zoo.case_0.html").read_text()
    assert "said &lt;i&gt;so&lt;/i&gt;" in case and "<i>so" not in case
    assert "assert &lt;b&gt;1" in (site / "causes" / f"{'f' * 16}.html").read_text()


def test_publish_writes_the_rows_as_data(site: Path) -> None:
    text = (site / "data" / "rows.js").read_text()
    rows = json.loads(text.removeprefix("window.ROWS = ").rstrip(";\n").replace("<\\/", "</"))
    assert len(rows["rows"]) == 40 and rows["rows"][0][rows["columns"].index("state")] == "new"
    assert json.loads((site / "data" / "verdict.json").read_text())["passes"] is False


def test_publish_has_no_column_of_a_verdict_that_no_row_has(site: Path) -> None:
    text = (site / "data" / "rows.js").read_text()
    rows = json.loads(text.removeprefix("window.ROWS = ").rstrip(";\n").replace("<\\/", "</"))
    seen = {row[rows["columns"].index("verdict")] for row in rows["rows"]}
    tables = (site / "index.html").read_text().partition('id="rows"')[0]
    shown = set(re.findall(r'<th class="number">([\w-]+)</th>', tables))
    assert shown == seen < set(VERDICTS)


def test_publish_marks_what_was_planted(site: Path) -> None:
    text = (site / "trends.html").read_text()
    assert "compile_s zoo.bert train assay stepped +5 % at c06 (after c05), in the same kernels" in text
    assert "ms kernel.softmax assay stepped +10 % at c08 (after c07)" in text and text.count('class="tag"') == 2
    feed = ElementTree.fromstring((site / "feed.atom").read_text())
    titles = [title.text for title in feed.iter("{http://www.w3.org/2005/Atom}title")]
    assert any("stepped +5 %" in str(title) for title in titles) and any("new:" in str(title) for title in titles)


def test_publish_shows_steps_that_were_taken_apart(site: Path) -> None:
    assert "kernel_1" in (site / "kernels.html").read_text() and "1,048,576" in (site / "kernels.html").read_text()
    case = (site / "cases" / "zoo.case_6.html").read_text()
    assert "model.py:10  return h.softmax(-1) &lt; 1" in case and "m::gelu(in0[i0]) &lt; 1" in case
    assert 'data-source="figure-1"' in case and "static/plotly.min.js" in case
    assert "MB over ms: zoo.case_12 infer" in (site / "memory.html").read_text()


def test_states_are_compared_with_the_one_before() -> None:
    states = [{"graph": "g", "state": name, "text": f"class G:\n  {name}"} for name in ("one", "two")]
    assert changes_of(states)[1].difference == ("@@ -1,2 +1,2 @@", " class G:", "-  one", "+  two")


def test_publish_counts_verdicts_by_dtype_and_layout(site: Path) -> None:
    """Each row once in each line of its words, and each number leads to its rows."""
    page = (site / "index.html").read_text()
    assert "Verdicts by backend and dtype" in page and "Verdicts by backend and layout" in page
    numbers = re.findall(r'<a href="#backend=(\w+)&amp;dtype=(\w+)&amp;verdict=(\w+)">(\d+)</a>', page)
    rows = json.loads((site / "data" / "rows.js").read_text().removeprefix("window.ROWS = ").rstrip(";\n"))
    at = {name: place for place, name in enumerate(rows["columns"])}
    for backend, dtype, verdict, count in numbers:
        found = [row for row in rows["rows"] if row[at["backend"]].startswith(backend)
                 and dtype in row[at["dtype"]].split(" ") and row[at["verdict"]] == verdict]  # fmt: skip
        assert len(found) == int(count), (backend, dtype, verdict)
    assert {dtype for _, dtype, *_ in numbers} == {"float32", "int64", "bfloat16"}


def test_publish_shows_how_errors_grow(site: Path) -> None:
    page = (site / "cases" / "zoo.case_0.html").read_text()
    assert 'data-source="errors-1-1"' in page and "Error against float64" in page
    (marked,) = re.findall(r'<tr class="marked">.*', page)
    assert "y = gelu" in marked and "&lt;b&gt;" in marked and "1.0e-03" in marked and "leaves eager" in marked
    assert '<td class="number">inf</td>' in page


def test_publish_marks_a_duplicate_and_the_cause_that_is_kept(site: Path) -> None:
    kept, twice = ((site / "causes" / f"{letter * 16}.html").read_text() for letter in "fe")
    assert "<dt>duplicate of</dt>" in twice and f'href="{"f" * 16}.html"' in twice and "the same program" in twice
    assert "<dt>has a duplicate</dt>" in kept and f'href="{"e" * 16}.html"' in kept
    assert f'duplicate of <a href="causes/{"f" * 16}.html">' in (site / "index.html").read_text()
