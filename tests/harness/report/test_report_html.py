"""`assay.harness.report.documents.render_html`: one page that loads nothing and hides nothing."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

from assay.harness.outcome import Difference
from assay.harness.report import documents as report
from assay.harness.report.documents import Row
from tests.harness.report.test_report_totals import ENVIRONMENT, row

VOID = {"meta", "link", "br", "hr", "img", "input"}


class Page(HTMLParser):
    """Checks that every element is closed in order, and keeps what a test asks about."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.attributes: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.attributes.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open and self.open.pop() == tag, f"</{tag}> closes nothing, near {self.getpos()}"

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] != "style":
            self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())

    def elements(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.attributes if name == tag]


def page(rows: list[Row], interrupted: bool = False) -> Page:
    made = Page(report.render_html(rows, ENVIRONMENT, interrupted=interrupted))
    assert made.open == [], "elements were left open"
    return made


DIVERGED = row("diverged", differences=(Difference("alias", "output.a", "<b> & shares no storage with input.0"),))


def test_html_shows_totals_a_row_a_case_and_the_environment() -> None:
    made = page([row(eager_ms=3.0, ms=2.0, compile_s=1.25, nodes=4, nodes_generated=3), DIVERGED])
    assert "1 of 2 runs behave as eager" in made.text
    assert len(made.elements("tbody")) == 2
    for word in ("suite.case", "1.50×", "1.25", "3/4", "a processor", "2.13.0"):  # noqa: RUF001
        assert word in made.text


def test_html_unfolds_differences_and_escapes_them() -> None:
    made = page([DIVERGED])
    assert "alias output.a : <b> & shares no storage with input.0" in made.text
    assert not made.elements("b")
    assert any("open" in attributes for attributes in made.elements("details"))


def test_html_folds_what_passes() -> None:
    made = page([row(fallbacks={"aten.mm": 2})])
    assert "2 calls to ATen" in made.text
    assert not any("open" in attributes for attributes in made.elements("details"))


def test_html_says_what_the_ledger_knows() -> None:
    made = page([row("crash", passes=True, notes=("crash: known: a reason (someone, until 2030-01-01)",))])
    assert "crash (known)" in made.text and "a reason" in made.text


def test_html_loads_nothing_and_fits_phones_and_dark_screens() -> None:
    text = report.render_html([DIVERGED, row(fallbacks={"aten.mm": 1})], ENVIRONMENT)
    assert not re.findall(r"(?:src|href)\s*=|url\(|@import|<script|<link", text)
    assert 'name="viewport"' in text and "prefers-color-scheme: dark" in text and "@media (max-width" in text


def test_html_of_an_interrupted_run_says_so() -> None:
    made = page([], interrupted=True)
    assert "interrupted" in made.text and "No case ran" in made.text


def test_html_is_written_as_the_index_of_a_new_directory(tmp_path: Path) -> None:
    path = report.write_html(tmp_path / "a" / "b", "<p>×</p>")  # noqa: RUF001
    assert path == tmp_path / "a" / "b" / "index.html"
    assert path.read_text(encoding="utf-8") == "<p>×</p>"  # noqa: RUF001
