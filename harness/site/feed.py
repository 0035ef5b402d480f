"""The regressions and what is new, as an Atom feed."""

from __future__ import annotations

from collections.abc import Sequence
from xml.etree import ElementTree

from assay.harness.remember.verdict_on_run import NEW, Verdict
from assay.harness.track.regressions import Regression

ATOM = "http://www.w3.org/2005/Atom"


def atom(verdict: Verdict, regressions: Sequence[Regression]) -> str:
    """A feed with an entry for each new cause and each regression; the ids stay the same from night to night."""
    ElementTree.register_namespace("", ATOM)
    feed = ElementTree.Element(f"{{{ATOM}}}feed")
    when = verdict.run.started
    _fill(feed, {"id": "urn:assay:nightly", "title": "Assay: what is new, and what got slower", "updated": when})
    _author(feed)
    for cause in verdict.of(NEW):
        name = cause.cluster.signature
        link = f"causes/{name[:16]}.html"
        _entry(feed, f"urn:assay:cause:{name}", f"new: {cause.cluster.name}", when, link, f"{len(cause.rows)} rows")
    for found in regressions:
        name = f"urn:assay:regression:{found.series}:{found.commit}"
        _entry(feed, name, found.sentence(), when, "trends.html", found.sentence())
    return ElementTree.tostring(feed, encoding="unicode", xml_declaration=True) + "\n"


def _fill(parent: ElementTree.Element, texts: dict[str, str]) -> None:
    for name, text in texts.items():
        ElementTree.SubElement(parent, f"{{{ATOM}}}{name}").text = text


def _author(feed: ElementTree.Element) -> None:
    _fill(ElementTree.SubElement(feed, f"{{{ATOM}}}author"), {"name": "assay"})


def _entry(feed: ElementTree.Element, name: str, title: str, when: str, link: str, text: str) -> None:
    entry = ElementTree.SubElement(feed, f"{{{ATOM}}}entry")
    _fill(entry, {"id": name, "title": title, "updated": when, "summary": text})
    ElementTree.SubElement(entry, f"{{{ATOM}}}link", href=link)
