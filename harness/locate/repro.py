"""A shrunk program as one file that needs torch alone, and asserts what was observed; and the text of an issue.

It is run in fresh processes before it is shown. What is said of it is how often it failed there, in the way that it
says.
"""

from __future__ import annotations

import dataclasses
import os
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from assay.harness.locate import forms_worker
from assay.harness.locate.forms_worker import ASSERTS, DIES, HANGS, PASSES, RAISES, is_check
from assay.harness.locate.repro_text import FRESH, PLAIN, Form, first_difference, forms, text_of
from assay.harness.locate.shrinking.shrink import Shrunk
from assay.harness.outcome import VERDICTS
from assay.harness.processes.child import Child
from assay.harness.processes.worker import ask, cold_environment
from assay.harness.report.environment import environment

TIMES = 3
TIMEOUT_S = 120.0
FORMS_S = 60.0
"""How long it is looked for a form in which the failure shows."""
SHORT = (Form(), Form(3, FRESH))
"""The forms that are tried for each further field that differs."""
ISSUE = """\
### {title}

Eager and `torch.compile(..., {settings})` give different results: {field} at `{path}`.
{detail}

The program below asserts that they agree. It failed in {rate}.
The first stage that differs is `{rung}`; `{below}` is as eager.

```python
{source}```

### Versions

{versions}
"""


@dataclass(frozen=True, slots=True)
class Repro:
    """A file, in how many of `runs` fresh processes it failed, and the text of an issue."""

    source: str
    failures: int
    runs: int
    issue: str = ""

    @property
    def is_verified(self) -> bool:
        return self.failures == self.runs

    @property
    def lines(self) -> int:
        return len(self.source.splitlines())


def verified(source: str, times: int = TIMES, ways: frozenset[str] = frozenset({ASSERTS, RAISES, DIES, HANGS})) -> int:
    """In how many of so many fresh processes the file fails in one of these ways."""
    with tempfile.TemporaryDirectory(prefix="assay-repro-") as folder:
        path = Path(folder) / "repro_of_a_difference.py"
        path.write_text(source)
        return sum(ended(path) in ways for _ in range(times))


def ended(path: Path) -> str:
    """How a file ends in a process with empty caches."""
    paths = os.pathsep.join([str(path.parent), *(each or "." for each in sys.path)])
    with cold_environment() as cold:
        child = Child(path.stem, environment={**cold, "PYTHONPATH": paths})
        try:
            status = child.wait(TIMEOUT_S)
        finally:
            child.end()
    if status is None:
        return HANGS
    if status < 0:
        return DIES
    return PASSES if status == 0 else ASSERTS if is_check(child.said(), str(path)) else RAISES


def ways_of(shrunk: Shrunk) -> frozenset[str]:
    """How a file of it is to end: an assertion, where something differs, though eager itself be near to a kink."""
    if shrunk.row.differences and shrunk.row.verdict != "crash":
        return frozenset({ASSERTS})
    return frozenset({HANGS} if shrunk.row.verdict == "timeout" else {RAISES, DIES})


@dataclass(frozen=True, slots=True)
class Failing:
    """A row that fails, the first rung on which it does, and the one `below`, where it does not; that one may be ""."""

    case: str
    mode: str
    backend: str
    rung: str
    below: str


def repro_of(shrunk: Shrunk, failing: Failing, times: int = TIMES) -> Repro:
    """The file with how often it failed, and the issue. A file that fails without a compiler shows nothing."""
    case, mode = failing.case, failing.mode
    found = shown_form(shrunk, failing)
    shrunk, shown, backend = found or (shrunk, Form(), failing.backend)
    failures = verified(text_of(shrunk, case, mode, backend, form=shown), times, ways_of(shrunk)) if found else 0
    rate = f"in {failures} of {times} fresh processes"
    source = text_of(shrunk, case, mode, backend, rate, shown)
    field, path, detail = first_difference(shrunk.row)
    versions = "\n".join(f"- {name}: {value}" for name, value in environment().items() if name != "commit")
    issue = ISSUE.format(
        title=f"{backend.partition(',')[0]}: {_headline(field)} in {'+'.join(shrunk.operators) or 'no call'}",
        settings=f"backend={backend.partition(',')[0]!r}", field=field, path=path, detail=detail,
        rate=rate.removeprefix("in "), rung=failing.rung, below=failing.below or "nothing", source=source,
        versions=versions,
    )  # fmt: skip
    return Repro(source, failures, times, issue)


def _headline(field: str) -> str:
    """What is wrong, as the title of an issue says it."""
    return f"{field} where eager runs" if field in VERDICTS else f"wrong {field}"


def shown_form(shrunk: Shrunk, failing: Failing) -> tuple[Shrunk, Form, str] | None:
    """The first form in which a file fails as it is to, and does not fail in eager, and the backend on which it does;
    None where there is none. What is given with it differs first in the field that the file asserts."""
    first, *others = by_field(shrunk)
    wanted = [(first, form) for form in forms(first, failing.mode)]
    wanted += [(other, form) for other in others for form in SHORT]
    known = [(each, form, backend) for each, form in wanted for backend in simplest_first(failing.backend)]
    pairs = [
        [text_of(each, failing.case, failing.mode, on, form=form) for on in (backend, PLAIN)]
        for each, form, backend in known
    ]
    with cold_environment() as cold:
        request = {"pairs": pairs, "ways": sorted(ways_of(shrunk))}
        answer = ask(forms_worker.__name__, request, FORMS_S, cold)
    found = [line["form"] for line in answer.lines if "form" in line]
    return known[found[0]] if found else None


def simplest_first(backend: str) -> tuple[str, ...]:
    """A backend that compiles with symbolic sizes is tried with fixed ones, which a file need not ask for."""
    fixed = ",".join(part for part in backend.split(",") if part != "dynamic")
    return (backend,) if fixed == backend else (fixed, backend)


def by_field(shrunk: Shrunk) -> Iterator[Shrunk]:
    """The program as it is; then with each further field that differs before the others."""
    yield shrunk
    if shrunk.row.verdict != "crash":
        known = {each.field: each for each in reversed(shrunk.row.differences)}
        known.pop(first_difference(shrunk.row)[0], None)
        for each in known.values():
            yield dataclasses.replace(shrunk, row=dataclasses.replace(shrunk.row, differences=(each,)))
