"""A verdict on a run as JUnit's XML, and as SARIF: what CI systems read."""

from __future__ import annotations

from typing import Any
from xml.etree import ElementTree

from assay.harness.remember.store import Kept
from assay.harness.remember.verdict_on_run import EXCUSED, NEW, Cause, Verdict

SARIF = "https://json.schemastore.org/sarif-2.1.0.json"
ILLEGAL = {code: None for code in range(32) if code not in (9, 10, 13)}
"""Characters that XML has no form for."""


def junit(verdict: Verdict) -> str:
    """A test a row. Only what is new fails; what is known or excused is skipped, and says why."""
    causes = {row.key: cause for cause in verdict.causes for row in cause.rows if cause.state != "fixed"}
    suite = ElementTree.Element("testsuite", name="assay", tests=str(len(verdict.rows)))
    counted = {"failures": 0, "skipped": 0}
    for row in verdict.rows:
        test = ElementTree.SubElement(suite, "testcase", classname=row.result.backend, name=_name(row))
        cause = causes.get(row.key)
        if cause is None:
            continue
        tag = "failure" if cause.state == NEW else "skipped"
        counted["failures" if tag == "failure" else "skipped"] += 1
        ElementTree.SubElement(test, tag, message=_clean(f"{cause.state}: {cause.cluster.name}")).text = _clean(
            _said(row)
        )
    suite.attrib.update({name: str(count) for name, count in counted.items()})
    root = ElementTree.Element("testsuites")
    root.append(suite)
    return ElementTree.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def _name(row: Kept) -> str:
    return f"{row.result.case} {row.result.mode}"


def _clean(text: str) -> str:
    return text.translate(ILLEGAL)


def _said(row: Kept) -> str:
    found = [f"{each.field} at {each.path}: {each.detail}" for each in row.result.differences[:5]]
    return "\n".join([row.result.verdict, *found, row.result.detail])


def sarif(verdict: Verdict, tool_version: str = "") -> dict[str, Any]:
    """A rule a cause, a result a row; the level of what is known is a note."""
    living = [cause for cause in verdict.causes if cause.state != "fixed"]
    rules = [{"id": cause.cluster.signature[:16], "shortDescription": {"text": cause.cluster.name}} for cause in living]
    results = [_result(cause, row) for cause in living for row in cause.rows]
    driver = {"name": "assay", "version": tool_version, "rules": rules}
    return {"$schema": SARIF, "version": "2.1.0", "runs": [{"tool": {"driver": driver}, "results": results}]}


def _result(cause: Cause, row: Kept) -> dict[str, Any]:
    level = "error" if cause.state == NEW else "note"
    where = {"logicalLocations": [{"fullyQualifiedName": row.result.case, "kind": "function"}]}
    made: dict[str, Any] = {
        "ruleId": cause.cluster.signature[:16], "level": level, "locations": [where],
        "message": {"text": f"{_name(row)} on {row.result.backend}: {_said(row)}"},
        "baselineState": "new" if cause.state == NEW else "unchanged",
    }  # fmt: skip
    if cause.duplicate is not None:
        made["properties"] = {"duplicateOf": cause.duplicate.of.signature[:16], "why": cause.duplicate.why}
    if cause.state == EXCUSED:
        made["suppressions"] = [{"kind": "external", "justification": "; ".join(row.judgement.notes)}]
    return made
